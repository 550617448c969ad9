import bitronix.tm.TransactionManagerServices;
import bitronix.tm.journal.DiskJournal;
import bitronix.tm.utils.Uid;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * The real disk journal, driven line by line. Arguments: part 1, part 2, size in MB, skip corrupted.
 *
 *   open                           opened, or the error
 *   log STATUS GTRID NAME,NAME     one record; "-" for no gtrid or no names
 *   force                          make it durable
 *   dangling                       "GTRID NAME,NAME;..." sorted
 *   close
 *   halt                           end at once, nothing closed
 */
public class RealJournal {
    private static final DiskJournal journal = new DiskJournal();

    public static void main(String[] args) throws Exception {
        var configuration = TransactionManagerServices.getConfiguration();
        configuration.setLogPart1Filename(args[0]);
        configuration.setLogPart2Filename(args[1]);
        configuration.setMaxLogSizeInMb(Integer.parseInt(args[2]));
        configuration.setSkipCorruptedLogs(Boolean.parseBoolean(args[3]));
        configuration.setDisableJmx(true);
        var input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(answer(line.split(" ")));
            System.out.flush();
        }
        System.exit(0);
    }

    private static String answer(String[] words) {
        try {
            switch (words[0]) {
                case "open": journal.open(); break;
                case "log": journal.log(Integer.parseInt(words[1]), new Uid(bytes(words[2])), names(words[3])); break;
                case "force": journal.force(); break;
                case "dangling": return "ok " + dangling();
                // The group commit thread spins if it is stopped in the middle of a sync.
                case "close": Thread.sleep(60); journal.close(); break;
                case "halt": Runtime.getRuntime().halt(0); break;
                default: return "error unknown command " + words[0];
            }
            return "ok";
        } catch (Throwable error) {
            return "error " + error.getClass().getName() + ": " + error.getMessage();
        }
    }

    private static String dangling() throws Exception {
        Map<String, String> found = new TreeMap<>();
        for (Object value : journal.collectDanglingRecords().values()) {
            var record = (bitronix.tm.journal.TransactionLogRecord) value;
            found.put(record.getGtrid().toString(), String.join(",", new TreeSet<String>(record.getUniqueNames())));
        }
        var text = new StringBuilder();
        found.forEach((gtrid, names) -> text.append(gtrid).append(' ').append(names).append(';'));
        return text.toString();
    }

    private static byte[] bytes(String hex) {
        if (hex.equals("-")) return new byte[0];
        byte[] result = new byte[hex.length() / 2];
        for (int i = 0; i < result.length; i++)
            result[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        return result;
    }

    private static Set<String> names(String text) {
        return text.equals("-") ? Set.of() : Set.of(text.split(","));
    }
}
