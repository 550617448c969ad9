import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.Statement;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

/** Commits of one-row inserts per second of the page store: database, threads, seconds, more of the URL. */
public final class Commits {
    private Commits() {
    }

    public static void main(String[] words) throws Exception {
        String url = "jdbc:h2:" + words[0] + ";MV_STORE=FALSE;DB_CLOSE_ON_EXIT=FALSE" + words[3];
        int threads = Integer.parseInt(words[1]);
        double seconds = Double.parseDouble(words[2]);
        Connection made = DriverManager.getConnection(url, "sa", "");
        try (Statement statement = made.createStatement()) {
            for (int k = 0; k < threads; k++) {
                statement.execute("CREATE TABLE N" + k + "(ID INT PRIMARY KEY, NAME VARCHAR)");
            }
        }
        run(url, threads, seconds / 2, 0);
        System.out.println("COMMITS " + Math.round(run(url, threads, seconds, 1 << 30)));
        System.out.flush();
        Runtime.getRuntime().halt(made.isClosed() ? 1 : 0);
    }

    /** Commits per second, each of one row of 100 characters; ids count from {@code first}. */
    private static double run(String url, int threads, double seconds, int first) throws Exception {
        var done = new AtomicLong();
        var ready = new CountDownLatch(threads);
        var start = new CountDownLatch(1);
        var ended = new CountDownLatch(threads);
        var end = new long[1];
        for (int k = 0; k < threads; k++) {
            String insert = "INSERT INTO N" + k + " VALUES(?, '" + "x".repeat(100) + "')";
            new Thread(() -> {
                try (Connection own = DriverManager.getConnection(url, "sa", "");
                        PreparedStatement statement = own.prepareStatement(insert)) {
                    own.setAutoCommit(false);
                    ready.countDown();
                    start.await();
                    int id = first;
                    for (; System.nanoTime() < end[0]; id++) {
                        statement.setInt(1, id);
                        statement.execute();
                        own.commit();
                    }
                    done.addAndGet(id - first);
                } catch (Exception error) {
                    error.printStackTrace();
                    Runtime.getRuntime().halt(2);
                }
                ended.countDown();
            }).start();
        }
        ready.await();
        long begin = System.nanoTime();
        end[0] = begin + (long) (seconds * 1e9);
        start.countDown();
        ended.await();
        return done.get() * 1e9 / (System.nanoTime() - begin);
    }
}
