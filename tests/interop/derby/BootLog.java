import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;

/** How long the real Derby takes over a long log: make one and die, or boot copies of the database. */
public final class BootLog {
    private BootLog() {
    }

    public static void main(String[] args) throws SQLException {
        // The largest that it allows: no checkpoint before, and one log file.
        System.setProperty("derby.storage.checkpointInterval", "134217728");
        System.setProperty("derby.storage.logSwitchInterval", "134217728");
        if (args[0].equals("make")) {
            make(args[1], Integer.parseInt(args[2]));
        } else {
            for (int i = 1; i < args.length; i++) {
                long begin = System.nanoTime();
                DriverManager.getConnection("jdbc:derby:" + args[i]);
                System.out.println("boot " + (System.nanoTime() - begin));
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    /** About so many MiB of committed rows since the last checkpoint. */
    private static void make(String path, int mib) throws SQLException {
        Connection connection = DriverManager.getConnection("jdbc:derby:" + path + ";create=true");
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE T(ID INT, NAME VARCHAR(400))");
        }
        connection.setAutoCommit(false);
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO T VALUES(?, ?)")) {
            for (int id = 0; id < mib * 2400; id++) {
                insert.setInt(1, id);
                insert.setString(2, "x".repeat(360));
                insert.execute();
                if (id % 1000 == 999) {
                    connection.commit();
                }
            }
        }
        connection.commit();
    }
}
