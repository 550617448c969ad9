import bitronix.tm.TransactionManagerServices;
import bitronix.tm.journal.DiskJournal;
import bitronix.tm.journal.TransactionLogRecord;
import java.nio.file.Path;

/** What the real disk journal finds open in many damaged copies of its two files. */
public final class BitronixCases extends Cases {
    /** open LIMIT. */
    public static void main(String[] args) throws Exception {
        new BitronixCases().serve(Long.parseLong(args[1]));
    }

    @Override protected void tell(String path) throws Exception {
        var configuration = TransactionManagerServices.getConfiguration();
        configuration.setLogPart1Filename(Path.of(path, "btm1.tlog").toString());
        configuration.setLogPart2Filename(Path.of(path, "btm2.tlog").toString());
        configuration.setMaxLogSizeInMb(1);
        configuration.setDisableJmx(true);
        DiskJournal journal = new DiskJournal();
        journal.open();
        try {
            var open = journal.collectDanglingRecords();
            say("opened", "");
            for (Object one : open.values()) {
                var record = (TransactionLogRecord) one;
                say(record.getGtrid().toString(), String.join(",", new java.util.TreeSet<String>(record.getUniqueNames())));
            }
        } finally {
            // The group commit thread spins if it is stopped in the middle of a sync.
            Thread.sleep(5);
            journal.close();
        }
    }
}
