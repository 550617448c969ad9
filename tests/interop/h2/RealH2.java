import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Random;

/** The real H2 page store, driven from tests: make a database, work on it and die, or tell what is in it. */
public final class RealH2 {
    private static final long SECOND = 1_000_000_000;

    private RealH2() {
    }

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "create" -> create(args[1], args[2]);
            case "work" -> work(args[1], Long.parseLong(args[2]), Integer.parseInt(args[3]), args[4]);
            case "report" -> {
                for (int i = 1; i < args.length; i++) {
                    report(args[i]);
                }
                System.out.flush();
                Runtime.getRuntime().halt(0);
            }
            case "decide" -> decide(args[1], args[2]);
            default -> throw new IllegalArgumentException(args[0]);
        }
    }

    private static Connection open(String path, String more) throws SQLException {
        String options = ";MV_STORE=FALSE;WRITE_DELAY=0;FILE_LOCK=NO;DB_CLOSE_ON_EXIT=FALSE;TRACE_LEVEL_FILE=0";
        return DriverManager.getConnection("jdbc:h2:" + path.replace(".h2.db", "") + options + more, "sa", "");
    }

    private static void create(String path, String pageSize) throws SQLException {
        try (Connection connection = open(path, ";PAGE_SIZE=" + pageSize); Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE T(ID INT PRIMARY KEY, NAME VARCHAR)");
            statement.execute("INSERT INTO T SELECT X, 'row ' || X FROM SYSTEM_RANGE(1, 20)");
        }
    }

    /** Random committed work, then an uncommitted change, then death without closing. */
    private static void work(String path, long seed, int count, String prepared) throws SQLException {
        Connection connection = open(path, "");
        connection.setAutoCommit(false);
        Random random = new Random(seed);
        for (int i = 0; i < count; i++) {
            int id = random.nextInt(400);
            try (PreparedStatement merge = connection.prepareStatement("MERGE INTO T KEY(ID) VALUES(?, ?)");
                    PreparedStatement delete = connection.prepareStatement("DELETE FROM T WHERE ID = ?")) {
                if (random.nextInt(4) == 0) {
                    delete.setInt(1, id);
                    delete.execute();
                } else {
                    merge.setInt(1, id);
                    merge.setString(2, "h2 " + random.nextInt(1000) + "x".repeat(random.nextInt(120)));
                    merge.execute();
                }
            }
            if (random.nextInt(3) > 0) {
                connection.commit();
            } else {
                connection.rollback();
            }
            if (random.nextInt(25) == 0) {
                try (Statement statement = connection.createStatement()) {
                    statement.execute("CHECKPOINT");
                }
            }
        }
        connection.commit();
        StringBuffer lines = new StringBuffer();
        rows(connection, lines);
        System.out.print(lines);
        try (Statement statement = connection.createStatement()) {
            statement.execute("INSERT INTO T VALUES(100000, 'never')");
            if (!prepared.isEmpty()) {
                statement.execute("PREPARE COMMIT " + prepared);
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    /** What one database tells; on some damaged ones the engine runs for ever, so it has a few seconds of a processor. */
    private static void report(String path) throws InterruptedException {
        System.out.println("path\t" + path);
        StringBuffer lines = new StringBuffer();
        Thread thread = new Thread(() -> tell(path, lines));
        thread.setDaemon(true);
        thread.start();
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        long last = System.nanoTime() + 60 * SECOND;
        while (thread.isAlive() && System.nanoTime() < last && threads.getThreadCpuTime(thread.getId()) < 4 * SECOND) {
            thread.join(20);
        }
        System.out.print(thread.isAlive() ? "error\t0\tdoes not end\n" : lines);
    }

    private static void tell(String path, StringBuffer lines) {
        try {
            Connection connection = open(path, "");
            lines.append("opened\t" + connection.isReadOnly() + "\n");
            try (Statement statement = connection.createStatement();
                    ResultSet found = statement.executeQuery("SELECT TRANSACTION, STATE FROM INFORMATION_SCHEMA.IN_DOUBT")) {
                while (found.next()) {
                    lines.append("doubt\t" + hex(found.getString(1)) + "\t" + found.getString(2) + "\n");
                }
            }
            rows(connection, lines);
            try (Statement statement = connection.createStatement()) {
                statement.execute("SHUTDOWN IMMEDIATELY");
            }
        } catch (SQLException error) {
            String text = error.getMessage().replaceAll("\\s", " ");
            lines.append("error\t" + error.getErrorCode() + "\t" + text + "\n");
        }
    }

    private static void rows(Connection connection, StringBuffer lines) throws SQLException {
        try (Statement statement = connection.createStatement();
                ResultSet found = statement.executeQuery("SELECT ID, NAME FROM T ORDER BY ID")) {
            while (found.next()) {
                lines.append("row\t" + found.getInt(1) + "\t" + hex(found.getString(2)) + "\n");
            }
        }
    }

    /** Any text, damaged ones too, in one word: its UTF-16 code units, big-endian. */
    private static String hex(String text) {
        StringBuilder units = new StringBuilder();
        for (char unit : (text == null ? "" : text).toCharArray()) {
            units.append(String.format("%04x", (int) unit));
        }
        return units.toString();
    }

    private static void decide(String path, String sql) throws SQLException {
        Connection connection = open(path, "");
        try (Statement statement = connection.createStatement()) {
            statement.execute(sql);
        }
        connection.close();
    }
}
