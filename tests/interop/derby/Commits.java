import java.sql.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicLong;

/** Commits of one-row inserts per second: database, threads, seconds. */
public class Commits {
    public static void main(String[] words) throws Exception {
        String url = "jdbc:derby:" + words[0] + ";create=true";
        int threads = Integer.parseInt(words[1]);
        double seconds = Double.parseDouble(words[2]);
        try (Connection made = DriverManager.getConnection(url); Statement statement = made.createStatement()) {
            for (int k = 0; k < threads; k++) statement.execute("create table n" + k + " (v char(100))");
        }
        AtomicLong done = new AtomicLong();
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        CountDownLatch ready = new CountDownLatch(threads);
        CountDownLatch start = new CountDownLatch(1);
        long[] end = new long[1];
        for (int k = 0; k < threads; k++) {
            String insert = "insert into n" + k + " values ('x')";
            pool.submit(() -> {
                try (Connection own = DriverManager.getConnection(url);
                     PreparedStatement statement = own.prepareStatement(insert)) {
                    for (int warm = 0; warm < 20; warm++) statement.execute();
                    ready.countDown();
                    start.await();
                    while (System.nanoTime() < end[0]) {
                        statement.execute();
                        done.incrementAndGet();
                    }
                }
                return null;
            });
        }
        ready.await();
        end[0] = System.nanoTime() + (long) (seconds * 1e9);
        start.countDown();
        pool.shutdown();
        pool.awaitTermination(600, TimeUnit.SECONDS);
        System.out.println("COMMITS " + Math.round(done.get() / seconds));
        Runtime.getRuntime().halt(0);
    }
}
