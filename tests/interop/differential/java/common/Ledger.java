import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32;

/**
 * What a workload did, written outside of the database, so that it outlives the process.
 *
 * Lines: "+ KEY VALUE", "- KEY", "-- PREFIX" of one transaction, "?" before its commit, "!" after it.
 */
public final class Ledger {
    private final FileOutputStream file;
    private final List<String> lines = new ArrayList<>();

    public Ledger(String path) throws IOException {
        file = new FileOutputStream(path);
    }

    public void put(String key, String value) {
        lines.add("+ " + key + " " + value);
    }

    public void remove(String key) {
        lines.add("- " + key);
    }

    public void removeAll(String prefix) {
        lines.add("-- " + prefix);
    }

    /** A place to which `forget` can go back. */
    public int mark() {
        return lines.size();
    }

    public void forget(int mark) {
        lines.subList(mark, lines.size()).clear();
    }

    public void attempt() throws IOException {
        lines.add("?");
        write();
    }

    public void acknowledged() throws IOException {
        lines.add("!");
        write();
    }

    private void write() throws IOException {
        file.write((String.join("\n", lines) + "\n").getBytes(StandardCharsets.US_ASCII));
        lines.clear();
    }

    /** One word for any content. */
    public static String sum(byte[]... parts) {
        CRC32 crc = new CRC32();
        long length = 0;
        for (byte[] part : parts) {
            if (part != null) {
                crc.update(part);
                length += part.length;
            }
        }
        return Long.toHexString(crc.getValue()) + "/" + length;
    }

    /** One word for a row, as its table was made; what is after "+", its CLOB, is not in the ledger. */
    public static String ofRow(ResultSet row) throws SQLException {
        var columns = row.getMetaData();
        boolean lob = columns.getColumnCount() > 2 && columns.getColumnName(3).equals("B");
        String word = sum(bytes(row.getString(2)), lob ? row.getBytes(3) : null);
        return lob ? word + "+" + sum(bytes(row.getString(4))) : word;
    }

    public static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_16BE);
    }
}
