import java.io.File;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.config.storage.DatabaseStorageConfiguration;
import org.apache.activemq.artemis.core.server.Queue;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;

/**
 * What a start keeps: Counts FOLDER [DATABASE], where the settings may name a database by its JDBC URL. Prints "COUNT QUEUE MESSAGES" for the queues of Messages.
 */
public class Counts {
    public static void main(String[] args) throws Exception {
        ConfigurationImpl configuration = Configured.below(new File(args[0]));
        if (args.length > 1) {
            DatabaseStorageConfiguration store = new DatabaseStorageConfiguration();
            store.setJdbcDriverClassName("org.apache.derby.jdbc.EmbeddedDriver");
            store.setJdbcConnectionUrl(args[1]);
            configuration.setStoreConfiguration(store);
        }
        EmbeddedActiveMQ server = new EmbeddedActiveMQ();
        server.setConfiguration(configuration);
        server.start();
        for (String name : new String[] {"orders", "left", "right"}) {
            Queue queue = server.getActiveMQServer().locateQueue(name);
            System.out.println("COUNT " + name + " " + (queue == null ? 0 : queue.getMessageCount()));
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
