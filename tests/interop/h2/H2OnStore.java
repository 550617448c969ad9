import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/**
 * The real H2 on databases of a page store: tell what is in them, decide transactions, or work on them.
 *
 * {@code tell PATH...}, {@code run PATH SQL...}, {@code work PATH TABLE SEED COUNT close|halt}. Tables have columns
 * K BIGINT and V VARBINARY.
 */
public final class H2OnStore {
    private static final int KEYS = 600;

    private H2OnStore() {
    }

    public static void main(String[] words) throws Exception {
        switch (words[0]) {
            case "tell" -> {
                for (int i = 1; i < words.length; i++) {
                    System.out.println("path\t" + words[i]);
                    tell(words[i]);
                }
            }
            case "run" -> run(words);
            case "work" -> work(words[1], words[2], Long.parseLong(words[3]), Integer.parseInt(words[4]), words[5]);
            default -> throw new IllegalArgumentException(words[0]);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static Connection open(String path) throws SQLException {
        String options = ";MV_STORE=FALSE;WRITE_DELAY=0;FILE_LOCK=NO;DB_CLOSE_ON_EXIT=FALSE;CACHE_SIZE=64;IFEXISTS=TRUE";
        return DriverManager.getConnection("jdbc:h2:" + path.replace(".h2.db", "") + options, "sa", "");
    }

    /** Everything in one database, which is then left without an orderly end. */
    private static void tell(String path) throws SQLException {
        try (Connection connection = open(path); Statement statement = connection.createStatement()) {
            System.out.println("opened\t" + connection.isReadOnly());
            for (String[] row : found(statement, "SELECT TRANSACTION, STATE FROM INFORMATION_SCHEMA.IN_DOUBT")) {
                System.out.println("doubt\t" + row[0] + "\t" + row[1]);
            }
            String tables = "SELECT TABLE_NAME, COLUMN_NAME FROM INFORMATION_SCHEMA.COLUMNS"
                + " WHERE TABLE_SCHEMA = 'PUBLIC' AND COLUMN_NAME = 'V' ORDER BY 1";
            for (String[] table : found(statement, tables)) {
                System.out.println("table\t" + table[0]);
                rows(statement, table[0]);
            }
            statement.execute("SHUTDOWN IMMEDIATELY");
        } catch (SQLException error) {
            if (error.getErrorCode() != 90121) { // closed by the shutdown
                System.out.println("error\t" + error.getErrorCode() + "\t" + error.getMessage().replaceAll("\\s", " "));
            }
        }
    }

    private static List<String[]> found(Statement statement, String sql) throws SQLException {
        List<String[]> rows = new ArrayList<>();
        try (ResultSet found = statement.executeQuery(sql)) {
            while (found.next()) {
                rows.add(new String[] {found.getString(1), found.getString(2)});
            }
        }
        return rows;
    }

    private static String quoted(String table) {
        return '"' + table.replace("\"", "\"\"") + '"';
    }

    private static void rows(Statement statement, String table) throws SQLException {
        String count = "SELECT COUNT(*), COUNT(V) FROM " + quoted(table);
        System.out.println("count\t" + found(statement, count).get(0)[0]);
        for (String[] row : found(statement, "SELECT K, RAWTOHEX(V) FROM " + quoted(table) + " ORDER BY K")) {
            System.out.println("row\t" + row[0] + "\t" + row[1]);
        }
    }

    private static void run(String[] words) throws SQLException {
        try (Connection connection = open(words[1]); Statement statement = connection.createStatement()) {
            for (int i = 2; i < words.length; i++) {
                statement.execute(words[i]);
            }
        }
    }

    /** Random transactions, some rolled back; the rows; then an orderly end or death in the middle of a change. */
    private static void work(String path, String table, long seed, int count, String end) throws SQLException {
        Connection connection = open(path);
        connection.setAutoCommit(false);
        Random random = new Random(seed);
        String name = quoted(table);
        try (PreparedStatement merge = connection.prepareStatement("MERGE INTO " + name + " KEY(K) VALUES(?, ?)");
                PreparedStatement delete = connection.prepareStatement("DELETE FROM " + name + " WHERE K = ?");
                Statement other = connection.createStatement()) {
            for (int i = 0; i < count; i++) {
                for (int change = random.nextInt(8); change >= 0; change--) {
                    long key = random.nextInt(KEYS) - KEYS / 2;
                    if (random.nextInt(3) == 0) {
                        delete.setLong(1, key);
                        delete.execute();
                    } else {
                        byte[] value = new byte[random.nextInt(10) == 0 ? 6000 : random.nextInt(400)];
                        random.nextBytes(value);
                        merge.setLong(1, key);
                        merge.setBytes(2, value);
                        merge.execute();
                    }
                }
                if (random.nextInt(4) == 0) {
                    connection.rollback();
                } else {
                    connection.commit();
                }
                if (random.nextInt(30) == 0) {
                    other.execute("CHECKPOINT");
                }
            }
            connection.commit();
            rows(other, table);
            if (end.equals("close")) {
                other.execute("SHUTDOWN");
            } else {
                other.execute("UPDATE " + name + " SET V = X'00'");
            }
        }
        if (end.equals("halt")) {
            System.out.flush();
            Runtime.getRuntime().halt(0);
        }
    }
}
