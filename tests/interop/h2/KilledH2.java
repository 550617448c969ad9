import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Connections at work on table T of a database, ended in the middle: path, seed, milliseconds; or its rows: path.
 *
 * The cache is small, so that changed pages go to the file long before a checkpoint, and what undoes them is in the
 * log. Prints how many transactions were committed.
 */
public final class KilledH2 {
    private static final int CONNECTIONS = 3;
    private static final int IDS = 900;
    private static final AtomicLong COMMITTED = new AtomicLong();

    private KilledH2() {
    }

    public static void main(String[] words) throws Exception {
        String url = "jdbc:h2:" + words[0].replace(".h2.db", "")
            + ";MV_STORE=FALSE;WRITE_DELAY=0;FILE_LOCK=NO;DB_CLOSE_ON_EXIT=FALSE;CACHE_SIZE=16;LOCK_TIMEOUT=10000";
        if (words.length == 1) {
            tell(DriverManager.getConnection(url, "sa", ""));
            return;
        }
        long seed = Long.parseLong(words[1]);
        for (int k = 0; k < CONNECTIONS; k++) {
            int number = k;
            Connection own = DriverManager.getConnection(url, "sa", "");
            own.setAutoCommit(false);
            var worker = new Thread(() -> work(own, new Random(seed + number), number));
            worker.setDaemon(true);
            worker.start();
        }
        while (COMMITTED.get() < 20) {
            Thread.sleep(1);
        }
        Thread.sleep(Long.parseLong(words[2]));
        System.out.println("committed\t" + COMMITTED.get());
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    /** The rows, and no orderly end: what recovery has made of the file is not looked at by another one. */
    private static void tell(Connection own) throws SQLException {
        try (Statement statement = own.createStatement();
                ResultSet found = statement.executeQuery("SELECT ID, NAME FROM T ORDER BY ID")) {
            while (found.next()) {
                System.out.println(found.getInt(1) + "\t" + found.getString(2));
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    /** Transactions of several changes each, some rolled back, until the end. */
    private static void work(Connection own, Random random, int number) {
        try (PreparedStatement merge = own.prepareStatement("MERGE INTO T KEY(ID) VALUES(?, ?)");
                PreparedStatement delete = own.prepareStatement("DELETE FROM T WHERE ID = ?");
                Statement other = own.createStatement()) {
            while (true) {
                for (int change = random.nextInt(6); change >= 0; change--) {
                    int id = random.nextInt(IDS) * CONNECTIONS + number;
                    if (random.nextInt(4) == 0) {
                        delete.setInt(1, id);
                        delete.execute();
                    } else {
                        merge.setInt(1, id);
                        merge.setString(2, "row " + random.nextInt(1000) + "x".repeat(random.nextInt(300)));
                        merge.execute();
                    }
                }
                if (random.nextInt(4) == 0) {
                    own.rollback();
                } else {
                    own.commit();
                    COMMITTED.incrementAndGet();
                }
                if (random.nextInt(60) == 0) {
                    other.execute("CHECKPOINT");
                }
            }
        } catch (SQLException error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(2);
        }
    }
}
