import java.lang.reflect.Method;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.Statement;
import javax.sql.XAConnection;
import javax.sql.XADataSource;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;

/** prepare CLASS SETTER VALUE: leaves a branch in doubt and is gone; sql URL STATEMENT... */
public class InDoubt {
    static final byte[] GTRID = "bank-1\0\0\0\0\0\117\14\44\0\0\0\125".getBytes();
    static final byte[] BQUAL = {0, -1, 1};

    record Branch(int format) implements Xid {
        public int getFormatId() { return format; }
        public byte[] getGlobalTransactionId() { return GTRID; }
        public byte[] getBranchQualifier() { return BQUAL; }
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("prepare")) prepare(arguments);
        try (Connection session = DriverManager.getConnection(arguments[1]);
             Statement statement = session.createStatement()) {
            for (int at = 2; at < arguments.length; at++) {
                if (!statement.execute(arguments[at])) continue;
                ResultSet rows = statement.getResultSet();
                while (rows.next()) System.out.println(rows.getString(1));
            }
        }
    }

    static void prepare(String[] arguments) throws Exception {
        Object source = Class.forName(arguments[1]).getConstructor().newInstance();
        for (int at = 2; at < arguments.length; at += 2) {
            Method setter = source.getClass().getMethod(arguments[at], String.class);
            setter.invoke(source, arguments[at + 1]);
        }
        XAConnection connection = ((XADataSource) source).getXAConnection();
        Statement statement = connection.getConnection().createStatement();
        statement.execute("CREATE TABLE T (ID INT PRIMARY KEY)");
        Xid branch = new Branch(0x42746E78);
        connection.getXAResource().start(branch, XAResource.TMNOFLAGS);
        statement.execute("INSERT INTO T VALUES (7)");
        connection.getXAResource().end(branch, XAResource.TMSUCCESS);
        connection.getXAResource().prepare(branch);
        Runtime.getRuntime().halt(0);
    }
}
