import bitronix.tm.journal.CorruptedTransactionLogException;
import bitronix.tm.journal.TransactionLogCursor;
import bitronix.tm.journal.TransactionLogRecord;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;

/** What the real cursor says about each file named on standard input, a line per call. */
public class DumpCursor {
    private static final int CALLS_MAX = 5000;

    public static void main(String[] args) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in));
        for (String file = input.readLine(); file != null; file = input.readLine()) {
            dump(new File(file));
            System.out.println("done");
            System.out.flush();
        }
    }

    private static void dump(File file) throws Exception {
        TransactionLogCursor cursor = null;
        try {
            cursor = new TransactionLogCursor(file);
            for (int calls = 0; calls < CALLS_MAX && step(cursor); calls++);
        } catch (Throwable error) {
            System.out.println("stop " + error.getClass().getName() + " " + error.getMessage());
        } finally {
            if (cursor != null) cursor.close();
        }
    }

    private static boolean step(TransactionLogCursor cursor) throws Exception {
        try {
            TransactionLogRecord record = cursor.readLog();
            System.out.println(record == null ? "end" : record.toString() + ", end=" + record.getEndRecord());
            return record != null;
        } catch (CorruptedTransactionLogException error) {
            System.out.println(error.getMessage());
            return true;
        }
    }
}
