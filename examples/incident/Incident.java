import bitronix.tm.BitronixTransactionManager;
import bitronix.tm.Configuration;
import bitronix.tm.TransactionManagerServices;
import bitronix.tm.resource.jdbc.PoolingDataSource;
import bitronix.tm.resource.jms.PoolingConnectionFactory;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.file.*;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import javax.jms.*;
import javax.sql.XAConnection;
import javax.transaction.xa.XAResource;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.server.JournalType;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;
import org.apache.activemq.artemis.jms.client.ActiveMQXAConnectionFactory;
import org.h2.jdbcx.JdbcDataSource;

/** A bank in Derby and H2 with a ledger in Artemis under Bitronix: make FOLDER ends in the middle of a commit, count FOLDER recovers. */
public class Incident {
    static final int ACCOUNTS = 10, EACH = 100, TRANSFERS = 12;

    /** H2's data source, whose branches end the process instead of committing once that is asked for. */
    public static class Halting extends JdbcDataSource {
        static boolean asked;

        @Override
        public XAConnection getXAConnection() throws SQLException {
            XAConnection real = super.getXAConnection();
            return (XAConnection) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {XAConnection.class},
                (proxy, method, given) -> method.getName().equals("getXAResource") ? halting(real.getXAResource()) : call(method, real, given));
        }

        static XAResource halting(XAResource real) {
            return (XAResource) Proxy.newProxyInstance(Halting.class.getClassLoader(), new Class<?>[] {XAResource.class}, (proxy, method, given) -> {
                if (asked && method.getName().equals("commit")) Runtime.getRuntime().halt(0);
                return call(method, real, given);
            });
        }

        static Object call(java.lang.reflect.Method method, Object on, Object[] given) throws Throwable {
            try {
                return method.invoke(on, given);
            } catch (InvocationTargetException failed) {
                throw failed.getCause();
            }
        }
    }

    public static void main(String[] given) throws Exception {
        Path folder = Path.of(given[1]).toAbsolutePath();
        boolean make = given[0].equals("make");
        Files.createDirectories(folder.resolve("bitronix"));
        Files.createDirectories(folder.resolve("h2"));
        Files.createDirectories(folder.resolve("derby"));
        Configuration settings = TransactionManagerServices.getConfiguration();
        settings.setServerId("bank-1");
        settings.setLogPart1Filename(folder.resolve("bitronix/btm1.tlog").toString());
        settings.setLogPart2Filename(folder.resolve("bitronix/btm2.tlog").toString());
        settings.setDisableJmx(true);
        settings.setGracefulShutdownInterval(1);
        PoolingDataSource a = source("jdbc/branch-a", "org.apache.derby.jdbc.EmbeddedXADataSource");
        a.getDriverProperties().setProperty("databaseName", folder.resolve("derby/bank").toString());
        if (make) a.getDriverProperties().setProperty("createDatabase", "create");
        a.init();
        PoolingDataSource b = source("jdbc/branch-b", Halting.class.getName());
        b.getDriverProperties().setProperty("URL", h2(folder));
        b.getDriverProperties().setProperty("user", "sa");
        b.getDriverProperties().setProperty("password", "");
        b.init();
        EmbeddedActiveMQ broker = broker(folder);
        PoolingConnectionFactory ledger = new PoolingConnectionFactory();
        ledger.setUniqueName("jms/ledger");
        ledger.setClassName(ActiveMQXAConnectionFactory.class.getName());
        ledger.getDriverProperties().setProperty("brokerURL", "vm://0");
        ledger.setMaxPoolSize(3);
        ledger.init();
        BitronixTransactionManager manager = TransactionManagerServices.getTransactionManager(); // recovers
        if (make) {
            make(manager, a, b, ledger);
        }
        manager.shutdown();
        long first = total(a.getUniqueName(), DriverManager.getConnection("jdbc:derby:" + folder.resolve("derby/bank")));
        a.close();
        ledger.close();
        System.out.println("ledger " + noted() + " of " + TRANSFERS * (TRANSFERS + 1) / 2);
        broker.stop();
        b.close(); // what H2 was told of a branch it does when it is opened again
        long second = total(b.getUniqueName(), DriverManager.getConnection(h2(folder), "sa", ""));
        System.out.println("moved " + (second - ACCOUNTS * EACH) + " of " + TRANSFERS * (TRANSFERS + 1) / 2);
        System.out.println("total " + (first + second) + " of " + 2 * ACCOUNTS * EACH);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static String h2(Path folder) {
        return "jdbc:h2:" + folder.resolve("h2/bank") + ";MV_STORE=FALSE;WRITE_DELAY=0;DB_CLOSE_ON_EXIT=FALSE;FILE_LOCK=NO";
    }

    static PoolingDataSource source(String name, String driver) {
        PoolingDataSource source = new PoolingDataSource();
        source.setUniqueName(name);
        source.setClassName(driver);
        source.setMaxPoolSize(3);
        source.setAllowLocalTransactions(true);
        return source;
    }

    static void make(BitronixTransactionManager manager, PoolingDataSource a, PoolingDataSource b, PoolingConnectionFactory ledger) throws Exception {
        for (PoolingDataSource one : new PoolingDataSource[] {a, b}) {
            try (java.sql.Connection connection = one.getConnection(); Statement statement = connection.createStatement()) {
                statement.execute("create table accounts (id int primary key, balance int)");
                for (int id = 0; id < ACCOUNTS; id++) statement.execute("insert into accounts values (" + id + ", " + EACH + ")");
            }
        }
        for (int number = 1; number <= TRANSFERS; number++) {
            Halting.asked = number == TRANSFERS;
            manager.begin();
            move(a, number % ACCOUNTS, -number);
            note(ledger, number);
            move(b, number % ACCOUNTS, number);
            manager.commit();
        }
    }

    static void move(PoolingDataSource source, int account, int amount) throws SQLException {
        try (java.sql.Connection connection = source.getConnection(); Statement statement = connection.createStatement()) {
            statement.execute("update accounts set balance = balance + " + amount + " where id = " + account);
        }
    }

    static EmbeddedActiveMQ broker(Path folder) throws Exception {
        ConfigurationImpl settings = new ConfigurationImpl();
        settings.setBrokerInstance(folder.resolve("artemis").toFile());
        settings.setJournalDirectory(folder.resolve("artemis/journal").toString());
        settings.setBindingsDirectory(folder.resolve("artemis/bindings").toString());
        settings.setPagingDirectory(folder.resolve("artemis/paging").toString());
        settings.setLargeMessagesDirectory(folder.resolve("artemis/large-messages").toString());
        settings.setJournalType(JournalType.NIO);
        settings.setJournalFileSize(1 << 20);
        settings.setMaxDiskUsage(-1);
        settings.setSecurityEnabled(false);
        settings.addAcceptorConfiguration("vm", "vm://0");
        EmbeddedActiveMQ broker = new EmbeddedActiveMQ();
        broker.setConfiguration(settings);
        broker.start();
        return broker;
    }

    static void note(PoolingConnectionFactory ledger, int amount) throws JMSException {
        Connection connection = ledger.createConnection();
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        session.createProducer(session.createQueue("ledger")).send(session.createTextMessage("" + amount));
        connection.close();
    }

    static long noted() throws JMSException {
        long sum = 0;
        try (JMSContext context = new ActiveMQConnectionFactory("vm://0").createContext()) {
            JMSConsumer consumer = context.createConsumer(context.createQueue("ledger"));
            for (String text; (text = consumer.receiveBody(String.class, 1_000)) != null;) sum += Long.parseLong(text);
        }
        return sum;
    }

    static long total(String name, java.sql.Connection connection) throws SQLException {
        try (connection; Statement statement = connection.createStatement(); ResultSet set = statement.executeQuery("select sum(balance) from accounts")) {
            set.next();
            System.out.println(name + " " + set.getLong(1));
            return set.getLong(1);
        }
    }
}
