import bitronix.tm.journal.TransactionLogCursor;
import bitronix.tm.journal.TransactionLogRecord;
import java.io.File;

/** The real cursor over one file: prints how many records it gives and the nanoseconds it took. */
public class ReadRecords {
    public static void main(String[] args) throws Exception {
        long begin = System.nanoTime();
        var cursor = new TransactionLogCursor(new File(args[0]));
        long count = 0;
        for (TransactionLogRecord record = cursor.readLog(); record != null; record = cursor.readLog()) count++;
        cursor.close();
        System.out.println(count + " " + (System.nanoTime() - begin));
    }
}
