import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;

/**
 * Opens one damaged copy after the other in one process: a path a line, for each what was found.
 *
 * "opened", then "KEY VALUE" for all that is there, "broken TEXT" for what cannot be read; or "error TEXT".
 * "hang" where the engine does not end; then this process ends. "done" after each.
 */
public abstract class Cases {
    private static final long MILLISECOND = 1_000_000;
    private final StringBuffer lines = new StringBuffer();

    protected abstract void tell(String path) throws Exception;

    protected final void say(String word, Object rest) {
        lines.append(word).append(' ').append(String.valueOf(rest).replaceAll("\\s+", " ")).append('\n');
    }

    public final void serve(long limitMs) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String path = in.readLine(); path != null; path = in.readLine()) {
            lines.setLength(0);
            boolean ended = ends(path, limitMs);
            out.print(lines);
            out.print(ended ? "done\n" : "hang \ndone\n");
            out.flush();
            if (!ended) {
                Runtime.getRuntime().halt(0);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private boolean ends(String path, long limitMs) throws InterruptedException {
        Thread thread = new Thread(() -> tried(path));
        thread.setDaemon(true);
        thread.start();
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        long last = System.nanoTime() + 400 * limitMs * MILLISECOND;
        while (thread.isAlive() && System.nanoTime() < last
                && threads.getThreadCpuTime(thread.getId()) < limitMs * MILLISECOND) {
            thread.join(20);
        }
        return !thread.isAlive();
    }

    private void tried(String path) {
        try {
            tell(path);
        } catch (Throwable failure) {
            Throwable cause = failure;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            say(lines.indexOf("opened") == 0 ? "broken" : "error", cause);
        }
    }

    /** Copies the files of a folder whose names have this in them: an older state of a log. */
    public static void copy(Path from, Path to, String named) throws IOException {
        Files.createDirectories(to);
        try (var found = Files.list(from)) {
            found.filter(one -> one.getFileName().toString().contains(named) && Files.isRegularFile(one)).forEach(one -> {
                try {
                    Files.copy(one, to.resolve(one.getFileName()));
                } catch (NoSuchFileException gone) {
                    // the engine deleted it meanwhile
                } catch (IOException failure) {
                    throw new UncheckedIOException(failure);
                }
            });
        }
    }
}
