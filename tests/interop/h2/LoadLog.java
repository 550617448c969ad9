import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import org.h2.tools.Recover;

/** How long the real H2 takes over a long log: make one and die, or time its ways of reading it on copies. */
public final class LoadLog {
    private LoadLog() {
    }

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "make" -> make(args[1], Integer.parseInt(args[2]));
            case "time" -> {
                for (int i = 0; i < Integer.parseInt(args[2]); i++) {
                    System.out.println("open " + open(args[1]) + "\nrecover " + recover(args[1]));
                }
            }
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static Connection connect(String path) throws SQLException {
        String options = ";MV_STORE=FALSE;FILE_LOCK=NO;DB_CLOSE_ON_EXIT=FALSE;TRACE_LEVEL_FILE=0";
        return DriverManager.getConnection("jdbc:h2:" + path.replace(".h2.db", "") + options, "sa", "");
    }

    /** About so many MiB of committed rows, all of them since the last checkpoint. */
    private static void make(String path, int mib) throws SQLException {
        Connection connection = connect(path);
        try (Statement statement = connection.createStatement()) {
            statement.execute("SET MAX_LOG_SIZE " + 4 * mib);
            statement.execute("CREATE TABLE T(ID INT PRIMARY KEY, NAME VARCHAR)");
        }
        connection.setAutoCommit(false);
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO T VALUES(?, ?)")) {
            for (int id = 0; id < mib * 2700; id++) {
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

    /** Nanoseconds until a copy is open, recovery included. */
    private static long open(String path) throws Exception {
        Path copy = Path.of(path).resolveSibling("copy.h2.db");
        Files.copy(Path.of(path), copy, StandardCopyOption.REPLACE_EXISTING);
        long begin = System.nanoTime();
        Connection connection = connect(copy.toString());
        long spent = System.nanoTime() - begin;
        try (Statement statement = connection.createStatement()) {
            statement.execute("SHUTDOWN IMMEDIATELY");
        }
        Files.delete(copy);
        return spent;
    }

    /** Nanoseconds of the Recover tool, which writes what it reads as SQL. */
    private static long recover(String path) throws Exception {
        Path file = Path.of(path);
        long begin = System.nanoTime();
        Recover.execute(file.getParent().toString(), file.getFileName().toString().replace(".h2.db", ""));
        return System.nanoTime() - begin;
    }
}
