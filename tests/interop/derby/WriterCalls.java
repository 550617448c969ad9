import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.derby.io.StorageRandomAccessFile;

/**
 * Feeds calls to Derby's own LogAccessFile; one line of standard input is one call, and one line of output
 * answers it: the result, what was written to the file, each write in hex, and the free bytes of the buffer.
 *
 * "new SIZE MINOR" begins a file: buffers of SIZE bytes, store version 10.MINOR.
 */
public final class WriterCalls {
    private static final String LOG = "org.apache.derby.impl.store.raw.log.";
    private static final List<String> written = new ArrayList<>();
    private static Object writer;

    private WriterCalls() {
    }

    public static void main(String[] none) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            written.clear();
            Object result = call(line.split(" "));
            System.out.println(result + " " + String.join(",", written) + " " + free());
        }
    }

    private static Object call(String[] words) throws Exception {
        return switch (words[0]) {
            case "new" -> begin(Integer.parseInt(words[1]), Integer.parseInt(words[2]));
            case "int" -> run("writeInt", Integer.parseInt(words[1]));
            case "long" -> run("writeLong", Long.parseLong(words[1]));
            case "byte" -> run("write", Integer.parseInt(words[1]));
            case "bytes" -> run("write", hex(words[1]), Integer.parseInt(words[2]), Integer.parseInt(words[3]));
            case "reserve" -> run("reserveSpaceForChecksum", Integer.parseInt(words[1]),
                Long.parseLong(words[2]), Long.parseLong(words[3]));
            case "record" -> run("writeLogRecord", Integer.parseInt(words[1]), Long.parseLong(words[2]),
                hex(words[3]), Integer.parseInt(words[4]), hex(words[5]), Integer.parseInt(words[6]),
                Integer.parseInt(words[7]));
            case "switch" -> run("switchLogBuffer");
            case "dirty" -> run("flushDirtyBuffers");
            case "flush" -> run("flushLogAccessFile");
            case "end" -> run("writeEndMarker", Integer.parseInt(words[1]));
            default -> throw new IllegalArgumentException(words[0]);
        };
    }

    /** "-" is the empty array. */
    private static byte[] hex(String text) {
        return text.equals("-") ? new byte[0] : HexFormat.of().parseHex(text);
    }

    private static Object begin(int size, int minor) throws Exception {
        Class<?> factoryClass = Class.forName(LOG + "LogToFile");
        Object factory = factoryClass.getConstructor().newInstance();
        set(factory, "onDiskMajorVersion", 10);
        set(factory, "onDiskMinorVersion", minor);
        Object file = Proxy.newProxyInstance(WriterCalls.class.getClassLoader(),
            new Class<?>[] {StorageRandomAccessFile.class}, (proxy, method, given) -> {
                if (method.getName().equals("write") && given.length == 3) {
                    int from = (int) given[1];
                    written.add(HexFormat.of().formatHex((byte[]) given[0], from, from + (int) given[2]));
                }
                return null;
            });
        Constructor<?> maker = Class.forName(LOG + "LogAccessFile")
            .getConstructor(factoryClass, StorageRandomAccessFile.class, int.class);
        writer = maker.newInstance(factory, file, size);
        return null;
    }

    private static Object run(String name, Object... given) throws Exception {
        for (Method method : writer.getClass().getDeclaredMethods()) {
            if (method.getName().equals(name) && takes(method, given)) {
                method.setAccessible(true);
                try {
                    return method.invoke(writer, given);
                } catch (InvocationTargetException error) {
                    return error.getCause().getClass().getSimpleName();
                }
            }
        }
        throw new NoSuchMethodException(name);
    }

    /** The arrays and numbers given are those that the method takes, box for primitive. */
    private static boolean takes(Method method, Object[] given) {
        Class<?>[] wanted = method.getParameterTypes();
        boolean all = wanted.length == given.length;
        for (int k = 0; all && k < given.length; k++) {
            Class<?> primitive = given[k] instanceof Integer ? int.class : long.class;
            all = given[k] instanceof byte[] ? wanted[k] == byte[].class : wanted[k] == primitive;
        }
        return all;
    }

    private static Object free() throws Exception {
        Object buffer = get(writer, "currentBuffer");
        return get(buffer, "bytes_free");
    }

    private static void set(Object of, String name, int value) throws Exception {
        Field field = of.getClass().getDeclaredField(name);
        field.setAccessible(true);
        field.setInt(of, value);
    }

    private static Object get(Object of, String name) throws Exception {
        Field field = of.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }
}
