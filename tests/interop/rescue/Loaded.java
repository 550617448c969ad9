import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.sql.*;
import java.util.*;

/** Loads scripts into a new database, and prints all rows of a schema: URL, schema, scripts. */
public class Loaded {
    public static void main(String[] given) throws Exception {
        try (Connection connection = DriverManager.getConnection(given[0], "sa", "")) {
            for (int k = 2; k < given.length; k++)
                for (String one : Files.readString(Path.of(given[k])).split(";\n"))
                    if (!one.isBlank())
                        try (Statement statement = connection.createStatement()) { statement.execute(one); }
            List<String> tables = new ArrayList<>();
            try (ResultSet set = connection.getMetaData().getTables(null, given[1], null, new String[] {"TABLE"})) {
                while (set.next()) tables.add(set.getString("TABLE_NAME"));
            }
            for (String table : tables) show(connection, given[1], table);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static void show(Connection connection, String schema, String table) throws SQLException {
        String name = "\"" + schema + "\".\"" + table.replace("\"", "\"\"") + "\"";
        try (Statement statement = connection.createStatement();
             ResultSet set = statement.executeQuery("select * from " + name)) {
            while (set.next()) {
                StringJoiner row = new StringJoiner("\t");
                for (int k = 1; k <= set.getMetaData().getColumnCount(); k++) row.add(shown(set, k));
                System.out.println("ROW\t" + table + "\t" + row);
            }
        }
    }

    static String shown(ResultSet set, int k) throws SQLException {
        String type = set.getMetaData().getColumnTypeName(k);
        boolean binary = type.contains("BINARY") || type.contains("BLOB") || type.contains("BIT DATA");
        byte[] bytes = binary ? set.getBytes(k) : set.getString(k) == null ? null : set.getString(k).getBytes(StandardCharsets.UTF_8);
        if (bytes == null) return "-";
        StringBuilder hex = new StringBuilder("s");
        for (byte one : bytes) hex.append(String.format("%02x", one));
        return hex.toString();
    }
}
