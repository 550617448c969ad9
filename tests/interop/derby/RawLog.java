import java.io.IOException;
import java.io.ObjectInput;
import java.io.ObjectOutput;
import java.sql.Connection;
import java.sql.DriverManager;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.derby.iapi.services.context.ContextManager;
import org.apache.derby.iapi.services.context.ContextService;
import org.apache.derby.iapi.services.io.LimitObjectInput;
import org.apache.derby.iapi.services.monitor.Monitor;
import org.apache.derby.iapi.store.raw.Loggable;
import org.apache.derby.iapi.store.raw.RawStoreFactory;
import org.apache.derby.iapi.store.raw.Transaction;
import org.apache.derby.iapi.store.raw.log.LogInstant;
import org.apache.derby.iapi.util.ByteArray;

/**
 * Commits per second of Derby's log alone: database, threads, seconds.
 *
 * Each thread logs an operation with an insert's bytes by the raw store's Transaction.logAndDo, which begins the
 * transaction with a record of its own, and commits, which flushes: LogToFile and LogAccessFile with their defaults.
 * No SQL, no pages, no locks.
 */
public final class RawLog {
    private RawLog() {
    }

    public static void main(String[] words) throws Exception {
        Connection made = DriverManager.getConnection("jdbc:derby:" + words[0] + ";create=true");
        Object database = Monitor.findService("org.apache.derby.database.Database", words[0]);
        var store = (RawStoreFactory) Monitor.findServiceModule(database, RawStoreFactory.MODULE);
        int threads = Integer.parseInt(words[1]);
        double seconds = Double.parseDouble(words[2]);
        run(store, threads, seconds / 2);
        System.out.println("COMMITS " + Math.round(run(store, threads, seconds)));
        System.out.flush();
        Runtime.getRuntime().halt(made.isClosed() ? 1 : 0);
    }

    /** Commits per second. */
    private static double run(RawStoreFactory store, int threads, double seconds) throws Exception {
        var done = new AtomicLong();
        var ended = new CountDownLatch(threads);
        long begin = System.nanoTime();
        long end = begin + (long) (seconds * 1e9);
        for (int k = 0; k < threads; k++) {
            new Thread(() -> {
                try {
                    done.addAndGet(commit(store, end));
                } catch (Exception error) {
                    error.printStackTrace();
                    Runtime.getRuntime().halt(2);
                }
                ended.countDown();
            }).start();
        }
        ended.await();
        return done.get() * 1e9 / (System.nanoTime() - begin);
    }

    private static long commit(RawStoreFactory store, long end) throws Exception {
        ContextService contexts = ContextService.getFactory();
        ContextManager own = contexts.newContextManager();
        contexts.setCurrentContextManager(own);
        Transaction transaction = store.startTransaction(own, "UserTransaction");
        var insert = new Insert();
        long count = 0;
        for (; System.nanoTime() < end; count++) {
            transaction.logAndDo(insert);
            transaction.commit();
        }
        transaction.close();
        contexts.resetCurrentContextManager(own);
        return count;
    }

    /** As many bytes as the insert of a row of 96 bytes, and nothing to be done. */
    private static final class Insert implements Loggable {
        private static final int INSERT_OPERATION = 103;
        private static final byte[] FIELDS = new byte[15];
        private static final byte[] IMAGE = new byte[102];

        @Override
        public int getTypeFormatId() {
            return INSERT_OPERATION;
        }

        @Override
        public void writeExternal(ObjectOutput out) throws IOException {
            out.write(FIELDS);
        }

        @Override
        public void readExternal(ObjectInput in) {
        }

        @Override
        public ByteArray getPreparedLog() {
            return new ByteArray(IMAGE);
        }

        @Override
        public void doMe(Transaction transaction, LogInstant instant, LimitObjectInput in) {
        }

        @Override
        public boolean needsRedo(Transaction transaction) {
            return false;
        }

        @Override
        public void releaseResource(Transaction transaction) {
        }

        @Override
        public int group() {
            return Loggable.RAWSTORE | Loggable.XA_NEEDLOCK;
        }
    }
}
