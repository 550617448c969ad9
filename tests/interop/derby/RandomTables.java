import java.nio.charset.StandardCharsets;
import java.sql.*;
import java.util.*;

/**
 * Random tables, rows and changes of tables in a Derby database, and what SELECT shows of them.
 * Arguments: database, seed, number of steps, "shutdown" or "halt".
 */
public class RandomTables {
    static final String[] TYPES = {
        "SMALLINT", "INTEGER", "BIGINT", "REAL", "DOUBLE", "DECIMAL(12,3)", "NUMERIC(31,0)", "DECIMAL(31,5)", "DECIMAL(31,31)", "BOOLEAN",
        "CHAR(5)", "VARCHAR(40)", "LONG VARCHAR", "CLOB", "CHAR(4) FOR BIT DATA",
        "VARCHAR(40) FOR BIT DATA", "LONG VARCHAR FOR BIT DATA", "BLOB", "DATE", "TIME", "TIMESTAMP",
        "VARCHAR(3000)", "FLOAT(20)", "FLOAT", "CHAR(254)", "DECIMAL(31,31) default 0.5", "VARCHAR(9) default 'it''s, )'",
    };

    static Connection connection;
    static Random random;
    static int names;

    public static void main(String[] given) throws Exception {
        random = new Random(Long.parseLong(given[1]));
        names = random.nextInt(1_000_000) * 1_000;
        connection = DriverManager.getConnection("jdbc:derby:" + given[0] + ";create=true");
        connection.setAutoCommit(false);
        for (int step = 0; step < Integer.parseInt(given[2]); step++) step();
        connection.commit();
        show();
        if (given[3].equals("shutdown")) {
            connection.commit();
            try {
                DriverManager.getConnection("jdbc:derby:" + given[0] + ";shutdown=true");
            } catch (SQLException expected) {
                // Derby says so when it is down
            }
        } else {
            for (String table : tables()) insert(table);  // never committed
            Connection other = DriverManager.getConnection("jdbc:derby:" + given[0]);
            other.createStatement().execute("create table last_one (x int)");  // syncs the log
        }
        Runtime.getRuntime().halt(0);
    }

    static void step() throws SQLException {
        List<String> tables = tables();
        int roll = random.nextInt(100);
        if (tables.isEmpty() || roll < 3 && tables.size() < 6) {
            create();
            return;
        }
        String table = tables.get(random.nextInt(tables.size()));
        if (roll < 45) insert(table);
        else if (roll < 65) update(table);
        else if (roll < 73) run("delete from " + table + " where ID = " + someId(table));
        else if (roll < 76) run("alter table " + table + " add column " + name() + " " + type()
            + (random.nextBoolean() ? "" : " "));
        else if (roll < 78) run("alter table " + table + " add column " + name() + " VARCHAR(9) default 'later'");
        else if (roll < 79) alterOne(table, "alter table %s drop column %s");
        else if (roll < 80) other(table);
        else if (roll < 83) alterOne(table, "rename column %s.%s to " + name());
        else if (roll < 84) run("rename table " + table + " to " + name());
        else if (roll < 85) run("truncate table " + table);
        else if (roll < 86) run("call SYSCS_UTIL.SYSCS_COMPRESS_TABLE('APP', '" + bare(table) + "', 1)");
        else if (roll < 87 || roll == 97) run("drop table " + table);
        else if (roll < 90) connection.rollback();
        else if (roll < 98) connection.commit();
        else { connection.commit(); run("call SYSCS_UTIL.SYSCS_CHECKPOINT_DATABASE()"); }
    }

    /** What moves rows, numbers or statements of the catalogue in a way of its own; it may be refused. */
    static void other(String table) throws SQLException {
        ResultSetMetaData columns = columns(table);
        String column = "\"" + columns.getColumnName(columns.getColumnCount()) + "\"", name = name();
        connection.commit();  // some of these end a transaction by themselves
        try {
            switch (random.nextInt(7)) {
                case 0 -> run("alter table " + table + " alter column " + column + " set data type VARCHAR(20000)");
                case 1 -> run("create index " + name + " on " + table + "(ID, " + column + ")");
                case 2 -> {
                    run("create table " + name + " as select * from " + table + " with no data");
                    run("insert into " + name + " select * from " + table);
                }
                case 3 -> run("create view " + name + " as select ID from " + table);
                case 4 -> run("update " + table + " set ID = -ID");
                case 5 -> run("call SYSCS_UTIL.SYSCS_INPLACE_COMPRESS_TABLE('APP', '" + bare(table) + "', 1, 1, 1)");
                default -> {
                    run("drop table " + table);
                    create(table);
                }
            }
        } catch (SQLException refused) {
            connection.rollback();
        }
    }

    static String name() {
        String odd = List.of("", "", "", " x", ",(", ").", "=é漢").get(random.nextInt(7));
        return "\"n" + ++names + odd + "\"";
    }

    static String bare(String name) { return name.replace("\"", ""); }

    static String type() { return TYPES[random.nextInt(TYPES.length)]; }

    static void run(String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(sql);
        } catch (SQLException refused) {
            if (!refused.getSQLState().equals("X0Y23")) throw refused;  // a view depends on the table
        }
    }

    static void create() throws SQLException { create(name()); }

    static void create(String table) throws SQLException {
        StringBuilder sql = new StringBuilder("create table " + table + " (ID INT PRIMARY KEY");
        for (int k = random.nextInt(8); k >= 0; k--) sql.append(", " + name() + " " + type());
        run(sql + ")");
    }

    static List<String> tables() throws SQLException {
        List<String> found = new ArrayList<>();
        try (Statement statement = connection.createStatement(); ResultSet set = statement.executeQuery(
            "select tablename from sys.systables where tabletype = 'T' and tablename <> 'LAST_ONE' order by 1")) {
            while (set.next()) found.add("\"" + set.getString(1) + "\"");
        }
        return found;
    }

    static ResultSetMetaData columns(String table) throws SQLException {
        // A plan that is kept from before a column was renamed may have its old name (Derby 10.10).
        return connection.prepareStatement("select * from " + table + " -- " + System.nanoTime()).getMetaData();
    }

    static void alterOne(String table, String sql) throws SQLException {
        ResultSetMetaData columns = columns(table);
        if (columns.getColumnCount() < 3) return;
        int which = 2 + random.nextInt(columns.getColumnCount() - 1);
        run(String.format(sql, table, "\"" + columns.getColumnName(which) + "\""));
    }

    static int someId(String table) throws SQLException {
        List<Integer> ids = new ArrayList<>();
        try (Statement statement = connection.createStatement();
             ResultSet set = statement.executeQuery("select ID from " + table + " order by ID")) {
            while (set.next()) ids.add(set.getInt(1));
        }
        return ids.isEmpty() ? -1 : ids.get(random.nextInt(ids.size()));
    }

    static void insert(String table) throws SQLException {
        ResultSetMetaData columns = columns(table);
        int count = columns.getColumnCount();
        try (PreparedStatement one = connection.prepareStatement(
            "insert into " + table + " values (?" + ", ?".repeat(count - 1) + ")")) {
            one.setInt(1, ++names);
            for (int k = 2; k <= count; k++) set(one, k, columns, k);
            one.execute();
        }
    }

    static void update(String table) throws SQLException {
        ResultSetMetaData columns = columns(table);
        if (columns.getColumnCount() < 2) return;
        int k = 2 + random.nextInt(columns.getColumnCount() - 1);
        try (PreparedStatement one = connection.prepareStatement(
            "update " + table + " set \"" + columns.getColumnName(k) + "\" = ? where ID = ?")) {
            set(one, 1, columns, k);
            one.setInt(2, someId(table));
            one.execute();
        }
    }

    static void set(PreparedStatement one, int at, ResultSetMetaData columns, int k) throws SQLException {
        int type = columns.getColumnType(k), width = columns.getPrecision(k);
        if (random.nextInt(6) == 0) { one.setNull(at, type); return; }
        switch (type) {
            case Types.SMALLINT -> one.setShort(at, of(List.of((short) -32768, (short) 32767), (short) random.nextInt()));
            case Types.INTEGER -> one.setInt(at, of(List.of(Integer.MIN_VALUE, Integer.MAX_VALUE), random.nextInt()));
            case Types.BIGINT -> one.setLong(at, of(List.of(Long.MIN_VALUE, Long.MAX_VALUE), random.nextLong()));
            case Types.REAL -> one.setFloat(at, of(List.of(3.402E38f, -3.402E38f, 1.18E-38f, 0f), (float) (random.nextGaussian() * 1e9)));
            case Types.DOUBLE -> one.setDouble(at, of(List.of(1.79769E308, -1.79769E308, 0d), random.nextGaussian() * 1e99));
            case Types.DECIMAL, Types.NUMERIC -> one.setBigDecimal(at, decimal(width, columns.getScale(k)));
            case Types.BOOLEAN -> one.setBoolean(at, random.nextBoolean());
            case Types.DATE -> one.setString(at, of(List.of("0001-01-01", "9999-12-31", "1582-10-15"), java.time.LocalDate.of(
                1600 + random.nextInt(8399), 1 + random.nextInt(12), 1 + random.nextInt(28)).toString()));
            case Types.TIME -> one.setString(at, of(List.of("00:00:00", "23:59:59"),
                Time.valueOf(java.time.LocalTime.ofSecondOfDay(random.nextInt(86_400))).toString()));
            case Types.TIMESTAMP -> one.setString(at, of(List.of("0001-01-01 00:00:00.0", "9999-12-31 23:59:59.999999999"),
                Timestamp.valueOf(java.time.LocalDateTime.of(
                    1600 + random.nextInt(2000), 1 + random.nextInt(12), 1 + random.nextInt(28), random.nextInt(24),
                    random.nextInt(60), random.nextInt(60), random.nextInt(1_000_000_000))).toString()));
            case Types.CHAR, Types.VARCHAR, Types.LONGVARCHAR, Types.CLOB -> one.setString(at, text(size(type, width)));
            default -> {
                byte[] bytes = new byte[size(type, width)];
                random.nextBytes(bytes);
                one.setBytes(at, bytes);
            }
        }
    }

    static <T> T of(List<T> extremes, T other) {
        int at = random.nextInt(extremes.size() * 3);
        return at < extremes.size() ? extremes.get(at) : other;
    }

    static java.math.BigDecimal decimal(int width, int scale) {
        java.math.BigInteger limit = java.math.BigInteger.TEN.pow(width).subtract(java.math.BigInteger.ONE);
        java.math.BigInteger number = of(List.of(limit, limit.negate(), java.math.BigInteger.ZERO, java.math.BigInteger.ONE),
            new java.math.BigInteger(limit.bitLength() - 1, random));
        return new java.math.BigDecimal(number, scale);
    }

    static int size(int type, int width) {
        boolean large = type == Types.CLOB || type == Types.BLOB;
        int most = Math.min(width, large ? 90_000 : 20_000);
        return random.nextInt(4) > 0 ? random.nextInt(Math.min(most, 30) + 1) : random.nextInt(most + 1);
    }

    static String text(int size) {
        StringBuilder text = new StringBuilder();
        while (text.length() < size) text.append("abcXYZ09 _é€\u0000\u00ff".charAt(random.nextInt(14)));
        if (size > 2 && random.nextInt(4) == 0) text.replace(0, 2, "\ud83d\ude00");
        return text.toString();
    }

    static void show() throws SQLException {
        for (String table : tables()) {
            ResultSetMetaData columns = columns(table);
            StringJoiner head = new StringJoiner("\t");
            for (int k = 1; k <= columns.getColumnCount(); k++)
                head.add(columns.getColumnName(k) + "=" + columns.getColumnTypeName(k));
            System.out.println("TABLE\t" + bare(table) + "\t" + head);
            try (Statement statement = connection.createStatement();
                 ResultSet set = statement.executeQuery("select * from " + table)) {
                while (set.next()) {
                    StringJoiner row = new StringJoiner("\t");
                    for (int k = 1; k <= columns.getColumnCount(); k++) row.add(shown(set, columns, k));
                    System.out.println("ROW\t" + row);
                }
            }
        }
    }

    static String shown(ResultSet set, ResultSetMetaData columns, int k) throws SQLException {
        byte[] bytes = switch (columns.getColumnType(k)) {
            case Types.BINARY, Types.VARBINARY, Types.LONGVARBINARY, Types.BLOB -> set.getBytes(k);
            default -> {
                String text = set.getString(k);
                yield text == null ? null : text.getBytes(StandardCharsets.UTF_8);
            }
        };
        return bytes == null ? "-" : "x" + HexFormat.of().formatHex(bytes);
    }
}
