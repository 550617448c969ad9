import java.io.ByteArrayInputStream;
import java.util.HexFormat;
import java.util.Properties;
import java.util.Scanner;

/** Each line of standard input is a file in hex; answers its names and values in hex, or "error". */
public final class LoadProperties {
    private LoadProperties() {
    }

    public static void main(String[] none) throws Exception {
        var files = new Scanner(System.in);
        while (files.hasNextLine()) {
            var loaded = new Properties();
            try {
                loaded.load(new ByteArrayInputStream(HexFormat.of().parseHex(files.nextLine())));
                var pairs = new StringBuilder("found");
                loaded.forEach((name, value) -> pairs.append(" ").append(hex(name)).append("=").append(hex(value)));
                System.out.println(pairs);
            } catch (IllegalArgumentException error) {
                System.out.println("error");
            }
        }
    }

    private static String hex(Object text) throws RuntimeException {
        return HexFormat.of().formatHex(((String) text).getBytes(java.nio.charset.StandardCharsets.UTF_16BE));
    }
}
