import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;

/** Random work with schema changes on a database through JDBC; it ends at any place. */
public abstract class Workload {
    /** A table as the transaction sees it. */
    static final class Table {
        boolean lob;
        boolean key;
        final TreeSet<Integer> indexes = new TreeSet<>();
        final TreeSet<Integer> columns = new TreeSet<>();
        final TreeSet<Integer> rows = new TreeSet<>();

        Table copy() {
            Table same = new Table();
            same.lob = lob;
            same.key = key;
            same.indexes.addAll(indexes);
            same.columns.addAll(columns);
            same.rows.addAll(rows);
            return same;
        }
    }

    protected final String database;
    protected final Random random;
    protected final Ledger ledger;
    protected Connection connection;
    private TreeMap<String, Table> committed = new TreeMap<>();
    private TreeMap<String, Table> tables = new TreeMap<>();
    private int next;

    protected Workload(String database, long seed, Ledger ledger) {
        this.database = database;
        this.random = new Random(seed);
        this.ledger = ledger;
    }

    protected abstract Connection connect() throws Exception;

    /** Prepare a branch, or commit one that is prepared. */
    protected abstract void branch() throws Exception;

    protected abstract void shutdown() throws Exception;

    protected abstract String checkpoint();

    /** Make a table smaller. */
    protected abstract void compress(String table) throws Exception;

    /** Whether a schema change is a transaction of its own. */
    protected abstract boolean alone();

    /** Let the engine make a copy of itself while it works. */
    protected abstract void backup(String path) throws Exception;

    /** Whether the first error ends the process: the disk is full. */
    private static final boolean FULL = Boolean.getBoolean("cases.full");
    /** Whether each table has large objects. */
    private static final boolean LOBS = Boolean.getBoolean("cases.lobs");
    /** Where a copy is made at the end, if so. */
    private static final String BACKUP = System.getProperty("cases.backup");

    /** Do as many transactions, copy the log in the middle of them, and end in some way. */
    public final void run(int count, Path log, String named, Path older) throws Exception {
        int copied = random.nextInt(count);
        try {
            work(count, copied, log, named, older);
        } catch (SQLException full) {
            if (!FULL) {
                throw full;
            }
            if (Files.notExists(older)) { // so soon that there is no earlier state but this one
                Cases.copy(log, older, named);
                beside(older);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private void work(int count, int copied, Path log, String named, Path older) throws Exception {
        connection = connect();
        connection.setAutoCommit(false);
        schema("create table TX (id int, v varchar(100))", () -> ledger.put("TX", "table"));
        commit();
        for (int k = 0; k < count; k++) {
            if (k == copied) {
                Cases.copy(log, older, named);
                beside(older);
            }
            transaction();
        }
        end();
    }

    /** Copy what lies beside the log as well, to a folder beside that copy. */
    protected void beside(Path older) throws Exception {
    }

    private void end() throws Exception {
        if (BACKUP != null) {
            unfinished();
            backup(BACKUP);
            return;
        }
        int how = random.nextInt(8);
        if (how == 0) {
            shutdown();
        } else if (how < 4) {
            unfinished();
        } else if (how < 6) {
            long after = random.nextInt(40);
            new Thread(() -> {
                try {
                    Thread.sleep(after);
                } catch (InterruptedException never) {
                    throw new IllegalStateException(never);
                }
                Runtime.getRuntime().halt(0);
            }).start();
            for (;;) {
                transaction();
            }
        }
    }

    private void unfinished() throws Exception {
        try {
            operate();
        } catch (SQLException refused) {
            System.out.println("refused " + refused);
        }
    }

    private void transaction() throws Exception {
        try {
            if (random.nextInt(12) == 0) {
                branch();
                return;
            }
            if (random.nextInt(15) == 0) {
                execute(checkpoint());
            }
            for (int k = random.nextInt(3); k >= 0; k--) {
                operate();
            }
            if (random.nextInt(6) == 0) {
                rollback();
            } else {
                commit();
            }
        } catch (SQLException refused) {
            System.out.println("refused " + refused);
            if (FULL) {
                throw refused;
            }
            rollback();
        }
    }

    private void commit() throws Exception {
        ledger.attempt();
        connection.commit();
        ledger.acknowledged();
        committed = copyOf(tables);
    }

    private void rollback() throws SQLException {
        connection.rollback();
        ledger.forget(0);
        tables = copyOf(committed);
    }

    private static TreeMap<String, Table> copyOf(TreeMap<String, Table> all) {
        TreeMap<String, Table> same = new TreeMap<>();
        all.forEach((name, table) -> same.put(name, table.copy()));
        return same;
    }

    /** Execute a schema change; `noted` writes down what it does. */
    protected final void schema(String sql, Runnable noted) throws Exception {
        if (!alone()) {
            execute(sql);
            noted.run();
            return;
        }
        commit();
        noted.run();
        ledger.attempt();
        execute(sql);
        ledger.acknowledged();
        committed = copyOf(tables);
    }

    private void operate() throws Exception {
        if (tables.isEmpty() || tables.size() < 5 && random.nextInt(10) == 0) {
            create();
            return;
        }
        String name = new ArrayList<>(tables.keySet()).get(random.nextInt(tables.size()));
        Table table = tables.get(name);
        switch (random.nextInt(24)) {
            case 0 -> addIndex(name, table);
            case 1 -> dropIndex(table);
            case 2 -> key(name, table);
            case 3 -> column(name, table);
            case 4 -> dropColumn(name, table);
            case 5 -> compress(name);
            case 6 -> drop(name);
            case 7 -> truncate(name, table);
            case 8 -> savepoint(name, table);
            case 9, 10, 11 -> update(name, table);
            case 12, 13 -> delete(name, table);
            default -> insert(name, table);
        }
    }

    private void create() throws Exception {
        String name = "T" + next++;
        Table table = new Table();
        table.lob = random.nextInt(3) == 0 || LOBS;
        table.key = random.nextInt(3) == 0;
        String key = table.key ? ", constraint K" + name + " primary key (id)" : "";
        String more = table.lob ? ", b blob, c clob" : "";
        schema("create table " + name + " (id int not null, v varchar(4000)" + more + key + ")", () -> {
            tables.put(name, table);
            ledger.put(name, "table");
        });
    }

    private void addIndex(String name, Table table) throws Exception {
        int number = next++;
        String columns = random.nextBoolean() ? "id" : "id, v";
        schema("create index I" + number + " on " + name + "(" + columns + ")", () -> table.indexes.add(number));
    }

    private void dropIndex(Table table) throws Exception {
        if (!table.indexes.isEmpty()) {
            schema("drop index I" + table.indexes.first(), table.indexes::pollFirst);
        }
    }

    private void key(String name, Table table) throws Exception {
        String change = table.key ? " drop constraint K" + name : " add constraint K" + name + " primary key (id)";
        schema("alter table " + name + change, () -> table.key = !table.key);
    }

    private void column(String name, Table table) throws Exception {
        int number = next++;
        String column = " add column X" + number + " varchar(50) default 'given'";
        schema("alter table " + name + column, () -> table.columns.add(number));
    }

    private void dropColumn(String name, Table table) throws Exception {
        if (!table.columns.isEmpty()) {
            String column = " drop column X" + table.columns.first();
            schema("alter table " + name + column, table.columns::pollFirst);
        }
    }

    private void drop(String name) throws Exception {
        schema("drop table " + name, () -> {
            tables.remove(name);
            ledger.removeAll(name + "/");
            ledger.remove(name);
        });
    }

    private void truncate(String name, Table table) throws Exception {
        schema("truncate table " + name, () -> {
            table.rows.clear();
            ledger.removeAll(name + "/");
        });
    }

    private void savepoint(String name, Table table) throws SQLException {
        insert(name, table);
        Savepoint savepoint = connection.setSavepoint();
        int mark = ledger.mark();
        Table before = table.copy();
        insert(name, table);
        update(name, table);
        if (random.nextBoolean()) {
            connection.rollback(savepoint);
            ledger.forget(mark);
            tables.put(name, before);
        }
    }

    private void insert(String name, Table table) throws SQLException {
        try (PreparedStatement insert = connection.prepareStatement("insert into " + name + "(id, v"
                + (table.lob ? ", b, c) values (?, ?, ?, ?)" : ") values (?, ?)"))) {
            for (int k = random.nextInt(30); k >= 0; k--) {
                int id = next++;
                String text = text();
                byte[] blob = table.lob ? blob() : null;
                insert.setInt(1, id);
                insert.setString(2, text);
                if (table.lob) {
                    insert.setBytes(3, blob);
                    insert.setString(4, text + text);
                }
                insert.executeUpdate();
                table.rows.add(id);
                ledger.put(name + "/" + id, Ledger.sum(Ledger.bytes(text), blob));
                k = table.lob ? Math.min(k, 6) : k;
            }
        }
    }

    private void update(String name, Table table) throws SQLException {
        for (int k = random.nextInt(5); k >= 0 && !table.rows.isEmpty(); k--) {
            int id = some(table);
            String text = text();
            byte[] blob = table.lob ? blob() : null;
            try (PreparedStatement update = connection.prepareStatement("update " + name + " set v = ?"
                    + (table.lob ? ", b = ?" : "") + " where id = " + id)) {
                update.setString(1, text);
                if (table.lob) {
                    update.setBytes(2, blob);
                }
                update.executeUpdate();
            }
            ledger.put(name + "/" + id, Ledger.sum(Ledger.bytes(text), blob));
        }
    }

    private void delete(String name, Table table) throws SQLException {
        for (int k = random.nextInt(8); k >= 0 && !table.rows.isEmpty(); k--) {
            int id = some(table);
            execute("delete from " + name + " where id = " + id);
            table.rows.remove(id);
            ledger.remove(name + "/" + id);
        }
    }

    private int some(Table table) {
        return new ArrayList<>(table.rows).get(random.nextInt(table.rows.size()));
    }

    private String text() {
        int length = random.nextInt(20) == 0 ? 3000 : 90;
        StringBuilder text = new StringBuilder();
        for (int k = random.nextInt(length); k >= 0; k--) {
            text.append((char) (' ' + random.nextInt(95)));
        }
        return text.toString();
    }

    private byte[] blob() {
        byte[] blob = new byte[random.nextInt(random.nextInt(3) == 0 ? 40_000 : 200)];
        random.nextBytes(blob);
        return blob;
    }

    protected final int number() {
        return next++;
    }

    protected final void execute(String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(sql);
        }
    }
}
