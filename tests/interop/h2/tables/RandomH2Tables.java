import java.nio.charset.StandardCharsets;
import java.sql.*;
import java.util.*;

/**
 * Random tables, rows and changes of tables in a database of the page store, and what SELECT shows of
 * them. Arguments: pairs of path and seed; then the process dies. Runs with H2 from 1.3.176 to 1.4.200.
 */
public class RandomH2Tables {
    static final List<Connection> OPENED = new ArrayList<>();  // one that is not reachable is closed
    static Connection connection;
    static Random random;
    static final String TEMPORARY = "\"temporary\"";
    static int names, build;

    public static void main(String[] given) throws Exception {
        for (int at = 0; at < given.length; at += 2) {
            random = new Random(Long.parseLong(given[at + 1]));
            names = 0;
            open(given[at]);
            String version = connection.getMetaData().getDatabaseProductVersion().split(" ")[0];
            build = Integer.parseInt(version.split("\\.")[2]);
            run("set compress_lob " + List.of("no", "lzf", "deflate").get(random.nextInt(3)));
            if (build >= 198) {
                run("create domain D_ENUM as ENUM('a', 'b''c', 'd)')");
                run("create domain D_BLOB as BLOB");
                run("create domain D_DECIMAL as DECIMAL(9, 2)");
            }
            int restarts = random.nextInt(3) == 0 ? 120 : random.nextInt(120);
            for (int step = 0; step < 120; step++) {
                if (step == restarts) restart(given[at]);
                step();
            }
            connection.commit();
            System.out.println("DATABASE\t" + given[at]);
            show();
            for (String table : tables()) insert(table);  // never committed
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static void open(String path) throws SQLException {
        connection = DriverManager.getConnection("jdbc:h2:" + path
            + ";MV_STORE=FALSE;WRITE_DELAY=0;FILE_LOCK=NO;DB_CLOSE_ON_EXIT=FALSE;TRACE_LEVEL_FILE=0", "sa", "");
        connection.setAutoCommit(false);
        OPENED.add(connection);
    }

    /** Then the log begins anew. */
    static void restart(String path) throws SQLException {
        connection.commit();
        if (random.nextBoolean()) {
            run("checkpoint");
        } else {
            OPENED.remove(connection);
            connection.close();
            open(path);
        }
    }

    static void step() throws SQLException {
        List<String> tables = tables();
        int roll = random.nextInt(100);
        if (tables.isEmpty() || roll < 5 && tables.size() < 4) {
            create();
            return;
        }
        String table = tables.get(random.nextInt(tables.size()));
        if (roll < 50) insert(table);
        else if (roll < 68) update(table);
        else if (roll < 75) run("delete from " + table + " where ID = " + someId(table));
        else if (roll < 78) attempt("alter table " + table + " add column " + name() + " " + type());
        else if (roll < 79) other(table);
        else if (roll < 81) alterOne(table, "alter table %s drop column %s");
        else if (roll < 83) alterOne(table, "alter table %s alter column %s rename to " + name());
        else if (roll < 84) attempt("alter table " + table + " rename to " + name());
        else if (roll < 85) attempt("truncate table " + table);
        else if (roll < 88) {
            run("drop table " + table + " cascade");
            if (random.nextBoolean()) create(random.nextBoolean() ? table : name());
        } else if (roll < 93) connection.rollback();
        else connection.commit();
    }

    /** What changes numbers, statements of the catalogue or rows in a way of its own; it may be refused. */
    static void other(String table) throws SQLException {
        List<String[]> columns = columns(table);
        String column = "\"" + columns.get(columns.size() - 1)[0] + "\"", name = name();
        attempt(List.of(
            "comment on table " + table + " is 'it''s\na (\"table\" INT, '",
            "comment on column " + table + "." + column + " is 'a, b)'",
            "alter table " + table + " alter column " + column + " " + type(),
            "alter table " + table + " add column " + name + " VARCHAR DEFAULT 'a, ''(\n' BEFORE " + column,
            "alter table " + table + " drop primary key",
            "create index " + name + " on " + table + "(ID)",
            "create table " + name + " as select * from " + table,
            "create view " + name + " as select ID from " + table,
            "create sequence " + name,
            "create cached local temporary table " + TEMPORARY + " (ID INT, A VARCHAR)",
            "insert into " + TEMPORARY + " values (1, 'x')",
            "drop table " + TEMPORARY,
            "update " + table + " set ID = -ID",
            "insert into " + table + " select * from " + table).get(random.nextInt(14)));
    }

    /** Run what may be refused: a table with a view, or with values that another type has not. */
    static void attempt(String sql) {
        try {
            run(sql);
        } catch (SQLException refused) {
            // then the statement has changed nothing
        }
    }

    static String name() {
        String odd = List.of("", "", "", " x", ",(", ").", "'s", "=é漢").get(random.nextInt(8));
        return "\"n" + ++names + odd + "\"";
    }

    /** A type; some only where this release has it. */
    static String type() {
        List<String> types = new ArrayList<>(List.of("TINYINT", "SMALLINT", "INT", "BIGINT", "REAL", "DOUBLE",
            "DECIMAL(10, 3)", "DECIMAL(38, 5)", "DECIMAL(38, 0)", "NUMERIC(31, 31)", "DECIMAL(60, 2)", "BOOLEAN",
            "CHAR(5)", "VARCHAR", "VARCHAR(40)", "VARCHAR_IGNORECASE", "CLOB", "BINARY(20)", "VARBINARY", "BLOB",
            "DATE", "TIME", "TIMESTAMP", "UUID", "ARRAY", "BYTEA", "DATETIME", "LONGVARCHAR", "IMAGE", "INT8", "YEAR", "SIGNED", "NUMBER",
            "DEC(9)", "FLOAT", "FLOAT(3)", "FLOAT(25)", "OTHER", "BIT", "INT DEFAULT (1) * 2", "VARCHAR DEFAULT 'x, )\ny'"));
        if (build >= 197) types.addAll(List.of("ENUM('a', '" + label().replace("'", "''") + "', 'd)')", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP(9)", "TIME(9)"));
        if (build >= 198) types.addAll(List.of("INTERVAL DAY(5) TO SECOND", "INTERVAL DAY TO HOUR", "INTERVAL DAY TO MINUTE",
            "INTERVAL HOUR TO MINUTE", "INTERVAL HOUR TO SECOND", "INTERVAL MINUTE TO SECOND", "INTERVAL YEAR TO MONTH",
            "INTERVAL SECOND(9, 9)", "INTERVAL MONTH", "GEOMETRY", "D_ENUM", "D_BLOB", "D_DECIMAL"));
        if (build >= 200) types.addAll(List.of("JSON", "TIME WITH TIME ZONE"));
        return types.get(random.nextInt(types.size()));
    }

    /** 1.4.197 does not read again the quotes that it writes into the catalogue. */
    static String label() { return build == 197 ? "b" : "b'c"; }

    static void run(String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) { statement.execute(sql); }
    }

    static void create() throws SQLException { create(name()); }

    static void create(String table) throws SQLException {
        StringBuilder sql = new StringBuilder("create table " + table + " (ID INT"
            + (random.nextInt(4) > 0 ? " PRIMARY KEY" : ""));
        for (int k = random.nextInt(8); k >= 0; k--) sql.append(", " + name() + " " + type());
        run(sql + ")");
    }

    static List<String> tables() throws SQLException {
        List<String> found = new ArrayList<>();
        try (ResultSet set = connection.getMetaData().getTables(null, "PUBLIC", null, new String[] {"TABLE"})) {
            while (set.next()) found.add("\"" + set.getString("TABLE_NAME") + "\"");
        }
        found.remove(TEMPORARY);
        Collections.sort(found);
        return found;
    }

    /** Names and types of columns, as the release tells them. */
    static List<String[]> columns(String table) throws SQLException {
        List<String[]> found = new ArrayList<>();
        try (ResultSet set = connection.getMetaData().getColumns(null, "PUBLIC", bare(table), null)) {
            while (set.next()) found.add(new String[] {set.getString("COLUMN_NAME"), set.getString("TYPE_NAME"),
                set.getString("COLUMN_SIZE"), set.getString("DECIMAL_DIGITS")});
        }
        for (String[] one : found) if (one[1].startsWith("INTERVAL")) one[1] = declared(table, one[0]);
        return found;
    }

    static String declared(String table, String column) throws SQLException {
        try (PreparedStatement one = connection.prepareStatement(
            "select COLUMN_TYPE from INFORMATION_SCHEMA.COLUMNS where TABLE_NAME = ? and COLUMN_NAME = ?")) {
            one.setString(1, bare(table));
            one.setString(2, column);
            ResultSet found = one.executeQuery();
            found.next();
            return found.getString(1);
        }
    }

    static String bare(String name) { return name.replace("\"", ""); }

    static void alterOne(String table, String sql) throws SQLException {
        List<String[]> columns = columns(table);
        if (columns.size() < 3) return;
        attempt(String.format(sql, table, "\"" + columns.get(1 + random.nextInt(columns.size() - 1))[0] + "\""));
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
        List<String[]> columns = columns(table);
        StringBuilder sql = new StringBuilder("insert into " + table + " values (?");
        for (int k = 1; k < columns.size(); k++) sql.append(", " + marker(columns.get(k)));
        try (PreparedStatement one = connection.prepareStatement(sql + ")")) {
            one.setInt(1, ++names);
            for (int k = 1; k < columns.size(); k++) set(one, k + 1, columns.get(k));
            one.execute();
        }
    }

    static String marker(String[] column) { return column[1].equals("JSON") ? "? format json" : "?"; }

    static void update(String table) throws SQLException {
        List<String[]> columns = columns(table);
        if (columns.size() < 2) return;
        String[] column = columns.get(1 + random.nextInt(columns.size() - 1));
        try (PreparedStatement one = connection.prepareStatement(
            "update " + table + " set \"" + column[0] + "\" = " + marker(column) + " where ID = ?")) {
            set(one, 1, column);
            one.setInt(2, someId(table));
            one.execute();
        } catch (SQLException refused) {  // 1.4.199 measures what an ENUM holds in its own way
            if (!refused.getMessage().contains("ENUM")) throw refused;
        }
    }

    static String interval(String fields) {
        int number = of(List.of(0, 99), random.nextInt(99)), less = of(List.of(0, 23, 11), random.nextInt(12));
        String fraction = of(List.of("", ".999999999"), ".5");
        switch (fields) {
            case "YEAR TO MONTH": return number + "-" + less % 12;
            case "DAY TO HOUR": return number + " " + less;
            case "DAY TO MINUTE": return number + " " + less + ":" + less;
            case "HOUR TO MINUTE": return number + ":" + less;
            case "HOUR TO SECOND": return number + ":" + less + ":" + less + fraction;
            case "MINUTE TO SECOND": return number + ":" + less + fraction;
            case "SECOND": return number + fraction;
            case "MONTH": return String.valueOf(number);
            default: return number + " " + less + ":" + less + ":" + less + fraction;
        }
    }

    static <T> T of(List<T> extremes, T other) {
        int at = random.nextInt(extremes.size() * 3);
        return at < extremes.size() ? extremes.get(at) : other;
    }

    static void set(PreparedStatement one, int at, String[] column) throws SQLException {
        if (random.nextInt(6) == 0) { one.setObject(at, null); return; }
        String type = column[1];
        int width = column[2] == null ? 0 : (int) Math.min(Long.parseLong(column[2]), 50_000);
        if (type.startsWith("INTERVAL")) one.setString(at, (random.nextBoolean() ? "-" : "") + interval(type.replaceAll("INTERVAL |\\([^)]*\\)| (COMMENT|DEFAULT|NOT) .*", "")));
        else if (type.startsWith("TIMESTAMP") && type.contains("ZONE")) one.setString(at, of(
            List.of("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999-12:30"), "2021-05-06 07:08:09.123456+02"));
        else if (type.startsWith("TIMESTAMP") || type.startsWith("DATETIME")) one.setString(at, of(
            List.of("0001-01-01 00:00:00", "0000-02-03 04:05:06", "9999-12-31 23:59:59.999999", "1970-01-01 00:00:00.000001", "1582-10-15 00:00:00",
                "2020-12-31 23:59:59.123456789", "12345-01-02 03:04:05"), "2021-05-06 07:08:" + (10 + random.nextInt(50)) + ".12"));
        else if (type.startsWith("TIME") && type.contains("ZONE")) one.setString(at, "10:11:12.5+01:30");
        else if (type.startsWith("TIME")) one.setString(at, of(List.of("00:00:00", "23:59:59"), "10:11:" + (10 + random.nextInt(50))));
        else if (type.startsWith("DATE")) one.setString(at, of(List.of("0001-01-01", "9999-12-31", "1582-10-15", "10000-01-01", "-0044-03-15", "0000-01-01"),
            "2021-05-" + (10 + random.nextInt(20))));
        else if (type.startsWith("ENUM")) one.setString(at, List.of("a", label(), "d)").get(random.nextInt(3)));
        else if (type.startsWith("GEOMETRY")) one.setString(at, List.of("POINT (1 2)", "POINT Z (1.5 -2 3e20)", "POLYGON ((0 0, 1 0, 1 1, 0 0))",
            "SRID=4326;LINESTRING (0 0, 1 1.25)", "MULTIPOINT ((1 2), (3 4))", "GEOMETRYCOLLECTION (POINT (1 2), LINESTRING (0 0, 1 1))",
            "POINT EMPTY", "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)))", "LINESTRING M (0 0 1, 1 1 2)").get(random.nextInt(9)));
        else switch (type) {
            case "TINYINT": one.setByte(at, of(List.of((byte) -128, (byte) 127, (byte) 0), (byte) random.nextInt())); break;
            case "SMALLINT": one.setShort(at, of(List.of((short) -32768, (short) 32767), (short) random.nextInt())); break;
            case "INTEGER": one.setInt(at, of(List.of(Integer.MIN_VALUE, Integer.MAX_VALUE, 0), random.nextInt())); break;
            case "BIGINT": one.setLong(at, of(List.of(Long.MIN_VALUE, Long.MAX_VALUE, 0L), random.nextLong())); break;
            case "REAL": one.setFloat(at, of(List.of(Float.MIN_VALUE, Float.MAX_VALUE, 0f, 1f, Float.NaN), (float) random.nextGaussian())); break;
            case "DOUBLE": case "DOUBLE PRECISION": case "FLOAT": one.setDouble(at, of(
                List.of(Double.MIN_VALUE, Double.MAX_VALUE, 0d, 1d, Double.NEGATIVE_INFINITY), random.nextGaussian() * 1e99)); break;
            case "DECIMAL": case "NUMERIC": one.setBigDecimal(at, decimal(Math.min(width, 60), Math.min(Integer.parseInt(column[3]), 60))); break;
            case "OTHER": one.setObject(at, List.of("text", 5, 1.5).get(random.nextInt(3)), Types.JAVA_OBJECT); break;
            case "BOOLEAN": one.setBoolean(at, random.nextBoolean()); break;
            case "UUID": one.setObject(at, of(List.of(new UUID(0, 0), new UUID(-1, -1)), new UUID(random.nextLong(), random.nextLong()))); break;
            case "JSON": one.setString(at, List.of("{\"a\":1}", "[1, \"é€\"]", "\"x\"", "1.5").get(random.nextInt(4))); break;
            case "ARRAY": one.setObject(at, of(List.of(new Object[0], new Object[] {null, ""}),
                new Object[] {random.nextInt(9), "é, ]", new Object[] {true, 1.5, 2L}, new java.math.BigDecimal("1.50")})); break;
            case "CHAR": case "VARCHAR": case "VARCHAR_IGNORECASE": case "CLOB": case "LONGVARCHAR": case "CHARACTER":
            case "CHARACTER VARYING": case "CHARACTER LARGE OBJECT":
                one.setString(at, text(size(width, type))); break;
            default:
                byte[] bytes = new byte[size(width, type)];
                random.nextBytes(bytes);
                one.setBytes(at, bytes);
        }
    }

    static java.math.BigDecimal decimal(int width, int scale) {
        java.math.BigInteger limit = java.math.BigInteger.TEN.pow(width).subtract(java.math.BigInteger.ONE);
        java.math.BigInteger number = of(List.of(limit, limit.negate(), java.math.BigInteger.ZERO, java.math.BigInteger.ONE),
            new java.math.BigInteger(limit.bitLength() - 1, random));
        return new java.math.BigDecimal(number, scale);
    }

    static int size(int width, String type) {
        boolean large = type.equals("CLOB") || type.equals("BLOB") || type.contains("LARGE");
        int most = Math.min(width, large ? 50_000 : 3_000);
        return random.nextInt(5) > 0 ? random.nextInt(Math.min(most, 40) + 1) : random.nextInt(most + 1);
    }

    static String text(int size) {
        StringBuilder text = new StringBuilder();
        while (text.length() < size) text.append("abcXYZ09 _é€\"\\\u0001ÿ".charAt(random.nextInt(16)));
        if (size > 2 && random.nextInt(4) == 0) text.replace(0, 2, "\ud83d\ude00");
        return text.toString();
    }

    static void show() throws SQLException {
        for (String table : tables()) {
            List<String[]> columns = columns(table);
            StringJoiner head = new StringJoiner("\t");
            for (String[] one : columns) head.add(one[0] + "=" + one[1]);
            System.out.println("TABLE\t" + bare(table) + "\t" + head);
            try (Statement statement = connection.createStatement();
                 ResultSet set = statement.executeQuery("select * from " + table)) {
                while (set.next()) {
                    StringJoiner row = new StringJoiner("\t");
                    for (int k = 1; k <= columns.size(); k++) row.add(shown(set, columns.get(k - 1)[1], k));
                    System.out.println("ROW\t" + row);
                }
            }
        }
    }

    static String shown(ResultSet set, String type, int k) throws SQLException {
        boolean binary = type.contains("BINARY") || type.contains("BLOB");
        String text = binary ? null : set.getString(k);
        byte[] bytes = binary ? set.getBytes(k) : text == null ? null : text.getBytes(StandardCharsets.UTF_8);
        if (bytes == null) return "-";
        StringBuilder hex = new StringBuilder("s");
        for (byte one : bytes) hex.append(String.format("%02x", one));
        return hex.toString();
    }
}
