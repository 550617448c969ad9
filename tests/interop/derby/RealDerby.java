import java.sql.*;
import java.util.*;
import javax.sql.XAConnection;
import javax.transaction.xa.*;
import org.apache.derby.jdbc.EmbeddedXADataSource;

/** Drives a real Derby database by words: one argument is one step. The first is the database. */
public class RealDerby {
    record Id(int format, byte[] gtrid, byte[] bqual) implements Xid {
        public int getFormatId() { return format; }
        public byte[] getGlobalTransactionId() { return gtrid; }
        public byte[] getBranchQualifier() { return bqual; }
    }

    static String database;
    static String attributes = "";
    static Connection connection;
    static final List<Object> kept = new ArrayList<>();

    public static void main(String[] steps) throws Exception {
        if (steps[0].equals("boot-each")) {
            for (int k = 1; k < steps.length; k++) {
                database = steps[k];
                connection = null;
                System.out.println("BOOT-EACH " + steps[k] + " " + tried(() -> rows()));
                tried(() -> { shutdown(); return ""; });
            }
            Runtime.getRuntime().halt(0);
        }
        database = steps[0];
        for (int k = 1; k < steps.length; k++) {
            String[] words = steps[k].split(":", 2);
            step(words[0], words.length > 1 ? words[1] : "");
        }
        Runtime.getRuntime().halt(0);
    }

    interface Work { String run() throws Exception; }

    static String tried(Work work) {
        try {
            return work.run();
        } catch (Exception failure) {
            Throwable cause = failure;
            while (cause.getCause() != null) cause = cause.getCause();
            return "NOBOOT " + cause.toString().replace('\n', ' ');
        }
    }

    static void step(String word, String rest) throws Exception {
        switch (word) {
            case "attributes" -> attributes = ";" + rest;
            case "create" -> run("create table n (id int, v varchar(60))");
            case "sql" -> run(rest);
            case "insert" -> run("insert into n values (" + rest + ", 'derby " + rest + "')");
            case "update" -> run("update n set v = 'changed " + rest + "' where id = " + rest);
            case "delete" -> run("delete from n where id = " + rest);
            case "checkpoint" -> run("call SYSCS_UTIL.SYSCS_CHECKPOINT_DATABASE()");
            case "rolledback" -> aside(rest).rollback();
            case "open" -> aside(rest);
            case "commit" -> ((Connection) kept.get(kept.size() - 1)).commit();
            case "prepared" -> prepare(rest);
            case "value" -> {
                String[] named = rest.split(":", 2);
                System.out.println(named[0] + " " + tried(() -> value(named[1])));
            }
            case "rows" -> System.out.println("ROWS " + tried(() -> rows()));
            case "recover" -> System.out.println("RECOVER " + recover());
            case "shutdown" -> shutdown();
            case "halt" -> Runtime.getRuntime().halt(0);
            default -> throw new IllegalArgumentException(word);
        }
    }

    static Connection open() throws SQLException {
        return DriverManager.getConnection("jdbc:derby:" + database + ";create=true" + attributes);
    }

    static void run(String sql) throws SQLException {
        if (connection == null) connection = open();
        try (Statement statement = connection.createStatement()) { statement.execute(sql); }
    }

    static Connection aside(String id) throws SQLException {
        Connection other = open();
        kept.add(other);
        other.setAutoCommit(false);
        try (Statement statement = other.createStatement()) {
            statement.execute("insert into n values (" + id + ", 'aside')");
        }
        return other;
    }

    static void prepare(String id) throws Exception {
        EmbeddedXADataSource source = new EmbeddedXADataSource();
        source.setDatabaseName(database);
        XAConnection branch = source.getXAConnection();
        kept.add(branch);
        XAResource resource = branch.getXAResource();
        Id xid = new Id(4661, ("gtrid-" + id).getBytes(), "b".getBytes());
        resource.start(xid, XAResource.TMNOFLAGS);
        try (Statement statement = branch.getConnection().createStatement()) {
            statement.execute("insert into n values (" + id + ", 'in doubt')");
        }
        resource.end(xid, XAResource.TMSUCCESS);
        resource.prepare(xid);
    }

    static String rows() throws SQLException {
        StringJoiner found = new StringJoiner("|");
        if (connection == null) connection = DriverManager.getConnection("jdbc:derby:" + database + attributes);
        try (Statement statement = connection.createStatement();
             ResultSet set = statement.executeQuery("select id, v from n order by id with ur")) {
            while (set.next()) found.add(set.getInt(1) + "=" + set.getString(2));
        }
        return found.toString();
    }

    /** The first column of the first row. */
    static String value(String query) throws SQLException {
        if (connection == null) connection = open();
        try (Statement statement = connection.createStatement(); ResultSet set = statement.executeQuery(query)) {
            set.next();
            return set.getString(1);
        }
    }

    static String recover() throws Exception {
        EmbeddedXADataSource source = new EmbeddedXADataSource();
        source.setDatabaseName(database);
        XAResource resource = source.getXAConnection().getXAResource();
        StringJoiner found = new StringJoiner("|");
        HexFormat hex = HexFormat.of();
        for (Xid xid : resource.recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN)) {
            found.add(xid.getFormatId() + ":" + hex.formatHex(xid.getGlobalTransactionId())
                + ":" + hex.formatHex(xid.getBranchQualifier()));
        }
        return found.toString();
    }

    static void shutdown() throws SQLException {
        connection = null;
        try {
            DriverManager.getConnection("jdbc:derby:" + database + ";shutdown=true");
        } catch (SQLException done) {
            if (!"08006".equals(done.getSQLState())) throw done;
        }
    }
}
