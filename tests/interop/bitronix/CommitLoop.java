import bitronix.tm.TransactionManagerServices;
import bitronix.tm.journal.DiskJournal;
import bitronix.tm.utils.Uid;
import java.nio.ByteBuffer;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;

/** The real journal with its defaults: threads that decide, force and close. Prints commits and nanoseconds. */
public class CommitLoop {
    public static void main(String[] args) throws Exception {
        var configuration = TransactionManagerServices.getConfiguration();
        configuration.setLogPart1Filename(args[0] + "/btm1.tlog");
        configuration.setLogPart2Filename(args[0] + "/btm2.tlog");
        configuration.setDisableJmx(true);
        int threads = Integer.parseInt(args[1]);
        long limit = (long) (Double.parseDouble(args[2]) * 1e9);
        var journal = new DiskJournal();
        journal.open();
        commit(journal, threads, limit / 4);
        long begin = System.nanoTime();
        int commits = commit(journal, threads, limit);
        System.out.println(commits + " " + (System.nanoTime() - begin));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static int commit(DiskJournal journal, int threads, long limit) throws Exception {
        var counter = new AtomicInteger();
        var done = new CountDownLatch(threads);
        long end = System.nanoTime() + limit;
        var names = Set.of("jdbc/orders", "jms/queue");
        for (int thread = 0; thread < threads; thread++) {
            int number = thread;
            new Thread(() -> {
                try {
                    for (int i = 0; System.nanoTime() < end; i++) {
                        var gtrid = new Uid(ByteBuffer.allocate(22).putInt(number).putInt(i).array());
                        journal.log(8, gtrid, names);
                        journal.force();
                        journal.log(3, gtrid, names);
                        counter.incrementAndGet();
                    }
                } catch (Exception error) {
                    error.printStackTrace();
                }
                done.countDown();
            }).start();
        }
        done.await();
        return counter.get();
    }
}
