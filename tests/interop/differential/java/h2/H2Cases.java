import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What is in many damaged copies of an H2 page store. */
public final class H2Cases extends Cases {
    /** work DATABASE SEED TRANSACTIONS LEDGER OLDER, or upgrade DATABASE SEED, or open LIMIT. */
    public static void main(String[] args) throws Exception {
        if (args[0].equals("open")) {
            new H2Cases().serve(Long.parseLong(args[1]));
        }
        if (args[0].equals("upgrade")) {
            try {
                Connection newer = open(Path.of(args[1], "db").toString(), "");
                if (Integer.parseInt(args[2]) % 2 == 0) {
                    newer.close();
                }
            } finally {
                Runtime.getRuntime().halt(0);
            }
        }
        Ledger ledger = new Ledger(args[4]);
        new H2Work(Path.of(args[1], "db").toString(), Long.parseLong(args[2]), ledger)
            .run(Integer.parseInt(args[3]), Path.of(args[1]), ".h2.db", Path.of(args[5]));
    }

    static Connection open(String path, String more) throws SQLException {
        String options = System.getProperty("cases.store", ";MV_STORE=FALSE") + ";WRITE_DELAY=0;FILE_LOCK=NO;DB_CLOSE_ON_EXIT=FALSE;TRACE_LEVEL_FILE=0";
        options += System.getProperty("cases.options", "");
        String url = "jdbc:h2:" + System.getProperty("cases.prefix", "") + path + options + more;
        return DriverManager.getConnection(url, "sa", System.getProperty("cases.password", ""));
    }

    @Override protected void tell(String path) throws Exception {
        Connection found = open(Path.of(path, "db").toString(), "");
        say("opened", "");
        try (Statement statement = found.createStatement()) {
            try (ResultSet set = statement.executeQuery("select transaction, state from information_schema.in_doubt")) {
                while (set.next()) {
                    say("xa/" + set.getString(1), set.getString(2));
                }
            }
            List<String> names = new ArrayList<>();
            try (ResultSet set = statement.executeQuery(
                    "select table_name from information_schema.tables where table_schema = 'PUBLIC'")) {
                while (set.next()) {
                    names.add(set.getString(1));
                }
            }
            for (String name : names) {
                rows(statement, name);
            }
        } finally {
            try (Statement statement = found.createStatement()) {
                statement.execute("SHUTDOWN IMMEDIATELY");
            } catch (SQLException gone) {
                // the engine closed it
            }
        }
    }

    private void rows(Statement statement, String name) {
        say(name, "table");
        try (ResultSet set = statement.executeQuery("select * from " + name)) {
            while (set.next()) {
                say(name + "/" + set.getInt(1), Ledger.ofRow(set));
            }
        } catch (Exception unreadable) {
            say("broken", name + " " + unreadable);
        }
    }
}

final class H2Work extends Workload {
    private final Map<String, Connection> branches = new LinkedHashMap<>();

    H2Work(String database, long seed, Ledger ledger) {
        super(database, seed, ledger);
    }

    @Override protected Connection connect() throws SQLException {
        return H2Cases.open(database, ";PAGE_SIZE=" + (512 << random.nextInt(4)));
    }

    @Override protected boolean alone() {
        return true;
    }

    @Override protected String checkpoint() {
        return "checkpoint";
    }

    /** ANALYZE commits what the connection did before, as every change of the schema does. */
    @Override protected void compress(String table) throws Exception {
        schema("analyze sample_size 10", () -> { });
    }

    @Override protected void shutdown() throws SQLException {
        execute("shutdown" + (random.nextBoolean() ? " compact" : ""));
    }

    @Override protected void backup(String path) throws SQLException {
        try (Connection other = H2Cases.open(database, ""); Statement statement = other.createStatement()) {
            statement.execute("backup to '" + path + "'");
        }
    }

    @Override protected void branch() throws Exception {
        if (!branches.isEmpty()) {
            String name = branches.keySet().iterator().next();
            Connection branch = branches.remove(name);
            ledger.remove("xa/" + name);
            ledger.attempt();
            try (Statement statement = branch.createStatement()) {
                statement.execute("commit transaction " + name);
            }
            ledger.acknowledged();
            branch.close();
            return;
        }
        String name = "BRANCH" + number();
        Connection branch = H2Cases.open(database, "");
        branch.setAutoCommit(false);
        try (Statement statement = branch.createStatement()) {
            for (int k = random.nextInt(4); k >= 0; k--) {
                statement.execute("insert into TX values (" + number() + ", 'branch')");
            }
            ledger.put("xa/" + name, "IN_DOUBT");
            ledger.attempt();
            statement.execute("prepare commit " + name);
        }
        ledger.acknowledged();
        branches.put(name, branch);
    }
}
