import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.sql.XAConnection;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.apache.derby.jdbc.EmbeddedXADataSource;

/** What is in many damaged copies of a Derby database. */
public final class DerbyCases extends Cases {
    /** What a URL has after the database: keys, another place of the log. */
    static final String OPTIONS = System.getProperty("cases.options", "");

    /** work DATABASE SEED TRANSACTIONS LEDGER OLDER, or upgrade DATABASE SEED, or open LIMIT. */
    public static void main(String[] args) throws Exception {
        if (args[0].equals("open")) {
            new DerbyCases().serve(Long.parseLong(args[1]));
        }
        if (args[0].equals("upgrade")) {
            int how = Integer.parseInt(args[2]);
            DriverManager.getConnection("jdbc:derby:" + args[1] + (how % 3 == 0 ? "" : ";upgrade=true"));
            if (how % 2 == 0) {
                shutdown(args[1]);
            }
            Runtime.getRuntime().halt(0);
        }
        Ledger ledger = new Ledger(args[4]);
        new DerbyWork(args[1], Long.parseLong(args[2]), ledger)
            .run(Integer.parseInt(args[3]), Path.of(System.getProperty("cases.device", args[1]), "log"), "", Path.of(args[5]));
    }

    static String name(Xid id) {
        return HexFormat.of().formatHex(id.getGlobalTransactionId());
    }

    @Override protected void tell(String path) throws Exception {
        EmbeddedXADataSource source = new EmbeddedXADataSource();
        source.setDatabaseName(path);
        source.setConnectionAttributes(OPTIONS);
        XAConnection xa = source.getXAConnection();
        try (Connection found = xa.getConnection()) {
            say("opened", "");
            for (Xid one : xa.getXAResource().recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN)) {
                say("xa/" + name(one), "prepared");
            }
            List<String> names = new ArrayList<>();
            try (Statement statement = found.createStatement();
                    ResultSet set = statement.executeQuery("select tablename from SYS.SYSTABLES where tabletype = 'T' with ur")) {
                while (set.next()) {
                    names.add(set.getString(1));
                }
            }
            for (String name : names) {
                rows(found, name);
            }
        } finally {
            shutdown(path);
        }
    }

    private void rows(Connection found, String name) {
        say(name, "table");
        try (Statement statement = found.createStatement();
                ResultSet set = statement.executeQuery("select * from " + name + " with ur")) {
            while (set.next()) {
                say(name + "/" + set.getInt(1), Ledger.ofRow(set));
            }
        } catch (Exception unreadable) {
            say("broken", name + " " + unreadable);
        }
    }

    static void shutdown(String path) {
        try {
            DriverManager.getConnection("jdbc:derby:" + path + ";shutdown=true");
        } catch (SQLException done) {
            // 08006: that is how a shutdown ends; otherwise it was not started
        }
    }
}

final class DerbyWork extends Workload {
    record Id(int getFormatId, byte[] getGlobalTransactionId, byte[] getBranchQualifier) implements Xid {
    }

    private final Map<Id, XAConnection> branches = new LinkedHashMap<>();

    DerbyWork(String database, long seed, Ledger ledger) {
        super(database, seed, ledger);
    }

    @Override protected Connection connect() throws SQLException {
        return DriverManager.getConnection("jdbc:derby:" + database + ";create=true" + DerbyCases.OPTIONS);
    }

    @Override protected boolean alone() {
        return false;
    }

    @Override protected void beside(Path older) throws Exception {
        Cases.copy(Path.of(database, "seg0"), older.resolveSibling("older-seg0"), ".dat");
    }

    @Override protected String checkpoint() {
        return "call SYSCS_UTIL.SYSCS_CHECKPOINT_DATABASE()";
    }

    @Override protected void compress(String table) throws SQLException {
        boolean inPlace = random.nextBoolean();
        execute("call SYSCS_UTIL.SYSCS_" + (inPlace ? "INPLACE_" : "") + "COMPRESS_TABLE('APP', '" + table + "', "
            + (inPlace ? "1, 1, 1)" : "0)"));
    }

    @Override protected void shutdown() throws SQLException {
        for (XAConnection one : branches.values()) {
            one.close();
        }
        connection.close();
        try {
            DriverManager.getConnection("jdbc:derby:" + database + ";shutdown=true");
        } catch (SQLException done) {
            System.out.println("shutdown " + done.getSQLState());
        }
    }

    @Override protected void backup(String path) throws SQLException {
        try (Connection other = DriverManager.getConnection("jdbc:derby:" + database);
                Statement statement = other.createStatement()) {
            String call = "call SYSCS_UTIL.SYSCS_BACKUP_DATABASE_NOWAIT('" + path + "')";
            try {
                statement.execute(call);
            } catch (SQLException unlogged) { // what has written without log records must end before
                connection.rollback();
                statement.execute(call);
            }
        }
    }

    @Override protected void branch() throws Exception {
        if (branches.size() > 1 || !branches.isEmpty() && random.nextBoolean()) {
            Id id = branches.keySet().iterator().next();
            XAConnection branch = branches.remove(id);
            ledger.remove("xa/" + DerbyCases.name(id));
            ledger.attempt();
            branch.getXAResource().commit(id, false);
            ledger.acknowledged();
            branch.close();
            return;
        }
        EmbeddedXADataSource source = new EmbeddedXADataSource();
        source.setDatabaseName(database);
        XAConnection branch = source.getXAConnection();
        XAResource resource = branch.getXAResource();
        int number = number();
        Id id = new Id(4661, ("gtrid-" + number).getBytes(), "b".getBytes());
        resource.start(id, XAResource.TMNOFLAGS);
        try (Statement statement = branch.getConnection().createStatement()) {
            for (int k = random.nextInt(4); k >= 0; k--) {
                int row = number();
                statement.execute("insert into TX values (" + row + ", 'branch')");
                ledger.put("TX/" + row, Ledger.sum(Ledger.bytes("branch"), null));
            }
        }
        resource.end(id, XAResource.TMSUCCESS);
        ledger.put("xa/" + DerbyCases.name(id), "prepared");
        ledger.attempt();
        resource.prepare(id);
        ledger.acknowledged();
        branches.put(id, branch);
    }
}
