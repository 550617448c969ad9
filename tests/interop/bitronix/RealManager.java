import bitronix.tm.TransactionManagerServices;
import bitronix.tm.journal.DiskJournal;
import bitronix.tm.journal.Journal;
import bitronix.tm.resource.jdbc.PoolingDataSource;
import bitronix.tm.utils.Uid;
import java.io.IOException;
import java.sql.Connection;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.transaction.Status;

/**
 * The real transaction manager over real databases. Arguments: folder of its journal, server id, mode, then
 * three for each resource: unique name, data source class, JDBC URL.
 *
 *   recover    start, which recovers, and shut down; prints committed, rolled back, and what failed
 *   commit     transfer one from the first resource to the last, on account 1
 *   prepared   the same, ended at once when every branch is prepared and nothing is decided
 *   decided    the same, ended at once when the decision is forced and no branch is committed
 */
public class RealManager {
    private static String mode;

    public static void main(String[] args) throws Exception {
        mode = args[2];
        var configuration = TransactionManagerServices.getConfiguration();
        configuration.setLogPart1Filename(args[0] + "/btm1.tlog");
        configuration.setLogPart2Filename(args[0] + "/btm2.tlog");
        configuration.setServerId(args[1]);
        configuration.setMaxLogSizeInMb(1);
        configuration.setDisableJmx(true);
        configuration.setJournal(HaltingJournal.class.getName());
        List<PoolingDataSource> sources = new ArrayList<>();
        for (int i = 3; i < args.length; i += 3) sources.add(source(args[i], args[i + 1], args[i + 2]));
        var manager = TransactionManagerServices.getTransactionManager();
        if (mode.equals("recover")) {
            var recoverer = TransactionManagerServices.getRecoverer();
            System.out.println(recoverer.getCommittedCount() + " " + recoverer.getRolledbackCount() + " "
                + recoverer.getCompletionException());
        } else {
            manager.begin();
            for (int i = 0; i < sources.size(); i++)
                pay(sources.get(i), i == sources.size() - 1 ? sources.size() - 1 : -1);
            manager.commit();
            System.out.println("committed");
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static PoolingDataSource source(String name, String type, String url) {
        var source = new PoolingDataSource();
        source.setUniqueName(name);
        source.setClassName(type);
        source.setMaxPoolSize(2);
        source.getDriverProperties().setProperty("url", url);
        source.init();
        return source;
    }

    private static void pay(PoolingDataSource source, int amount) throws Exception {
        try (Connection connection = source.getConnection(); var statement = connection.createStatement()) {
            statement.executeUpdate("UPDATE accounts SET balance = balance + " + amount + " WHERE id = 1");
        }
    }

    /** The disk journal, at which the process can be ended. */
    public static class HaltingJournal implements Journal {
        private final DiskJournal journal = new DiskJournal();

        @Override public void log(int status, Uid gtrid, Set<String> names) throws IOException {
            journal.log(status, gtrid, names);
            if (status == Status.STATUS_PREPARED && mode.equals("prepared")) Runtime.getRuntime().halt(9);
        }

        @Override public void force() throws IOException {
            journal.force();
            if (mode.equals("decided")) Runtime.getRuntime().halt(9);
        }

        @Override public void open() throws IOException {
            journal.open();
        }

        @Override public void close() throws IOException {
            journal.close();
        }

        @Override public void shutdown() {
            journal.shutdown();
        }

        @Override public Map collectDanglingRecords() throws IOException {
            return journal.collectDanglingRecords();
        }
    }
}
