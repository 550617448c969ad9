import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.PrintStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Set;

/**
 * What recovery does with damaged stores of files: the branches that it commits or rolls back, and the transactions
 * that it leaves. Narayana has one store a class loader, so each copy gets a loader of its own.
 */
public final class NarayanaCases extends Cases {
    /** open LIMIT. */
    public static void main(String[] args) throws Exception {
        new NarayanaCases().serve(Long.parseLong(args[1]));
    }

    @Override protected void tell(String path) throws Exception {
        String[] parts = System.getProperty("java.class.path").split(File.pathSeparator);
        URL[] places = new URL[parts.length];
        for (int i = 0; i < parts.length; i++) places[i] = Path.of(parts[i]).toUri().toURL();
        ByteArrayOutputStream told = new ByteArrayOutputStream();
        try (URLClassLoader loader = new URLClassLoader(places, ClassLoader.getPlatformClassLoader())) {
            Thread.currentThread().setContextClassLoader(loader);
            Class<?> files = loader.loadClass("Files");
            files.getField("out").set(null, new PrintStream(told, true));
            String kind = java.nio.file.Files.readString(Path.of(path, "kind"));
            Object arguments = new String[] {"recover", kind, Path.of(path, "store").toString()};
            files.getMethod("run", String[].class).invoke(null, arguments);
        }
        say("opened", "");
        Set<String> once = new HashSet<>();
        for (String line : told.toString().split("\n")) {
            String[] words = line.split(" ");
            if (words[0].equals("state") && !words[1].startsWith("StateManager/BasicAction")) continue;
            String key = words[0].equals("state") ? "left/" + words[2] : words.length < 6 ? "" : "told/" + words[4] + "/" + words[5];
            if (!key.isEmpty() && once.add(key)) say(key, words[0]);
        }
    }
}
