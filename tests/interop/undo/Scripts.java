import java.io.*;
import java.nio.charset.StandardCharsets;
import java.sql.*;
import java.util.*;

/**
 * Runs scripts of SQL in embedded databases: one step a line of standard input, its text escaped.
 * Prints what is refused and what is dumped; databases stay open, and the process ends as a crash does.
 */
public class Scripts {
    static Connection connection;
    static final List<Connection> kept = new ArrayList<>();  // H2 closes what nobody holds

    public static void main(String[] given) throws Exception {
        BufferedReader steps = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        for (String line = steps.readLine(); line != null; line = steps.readLine()) {
            int at = line.indexOf('\t');
            step(at < 0 ? line : line.substring(0, at), at < 0 ? "" : unescaped(line.substring(at + 1)), out);
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    static void step(String word, String rest, PrintStream out) throws SQLException {
        switch (word) {
            case "open":
                connection = DriverManager.getConnection(rest);
                connection.setAutoCommit(false);
                kept.add(connection);
                break;
            case "close":
                connection.close();
                break;
            case "shutdown":  // Derby says so by an error
                try { DriverManager.getConnection(rest); } catch (SQLException done) { connection = null; }
                break;
            case "commit": connection.commit(); break;
            case "rollback": connection.rollback(); break;
            case "say": out.println("SAY\t" + rest); break;
            case "dump": dump(rest, out); break;
            default: run(rest, out);
        }
    }

    static void run(String sql, PrintStream out) {
        try (Statement statement = connection.createStatement()) {
            statement.execute(sql);
        } catch (SQLException refused) {
            out.println("REFUSED\t" + escaped(refused + ": " + sql.substring(0, Math.min(sql.length(), 2000))));
        }
    }

    static void dump(String table, PrintStream out) throws SQLException {
        try (Statement statement = connection.createStatement();
             ResultSet set = statement.executeQuery("select * from " + table)) {
            ResultSetMetaData columns = set.getMetaData();
            while (set.next()) {
                StringJoiner row = new StringJoiner("\t");
                for (int k = 1; k <= columns.getColumnCount(); k++) {
                    String text = set.getString(k);
                    row.add(text == null ? "-" : "s" + escaped(text));
                }
                out.println("ROW\t" + escaped(table) + "\t" + row);
            }
        }
    }

    static String unescaped(String text) {
        StringBuilder found = new StringBuilder();
        for (int k = 0; k < text.length(); k++) {
            char one = text.charAt(k);
            if (one != '\\') { found.append(one); continue; }
            found.append((char) Integer.parseInt(text.substring(k + 1, k + 5), 16));
            k += 4;
        }
        return found.toString();
    }

    static String escaped(String text) {
        StringBuilder found = new StringBuilder();
        for (char one : text.toCharArray()) {
            if (one >= ' ' && one < 127 && one != '\\') found.append(one);
            else found.append(String.format("\\%04x", (int) one));
        }
        return found.toString();
    }
}
