import java.io.File;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.server.JournalType;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;

/** A broker that speaks STOMP on a port of loopback: Broker FOLDER PORT. Prints "ready". */
public class Broker {
    public static void main(String[] args) throws Exception {
        File folder = new File(args[0]);
        ConfigurationImpl configuration = new ConfigurationImpl();
        configuration.setBrokerInstance(folder);
        configuration.setJournalDirectory(new File(folder, "journal").getPath());
        configuration.setBindingsDirectory(new File(folder, "bindings").getPath());
        configuration.setPagingDirectory(new File(folder, "paging").getPath());
        configuration.setLargeMessagesDirectory(new File(folder, "large").getPath());
        configuration.setJournalType(JournalType.NIO);
        configuration.setJournalFileSize(1 << 20);
        configuration.setMaxDiskUsage(-1);
        configuration.setSecurityEnabled(false);
        configuration.addAcceptorConfiguration(
            "stomp", "tcp://127.0.0.1:" + args[1] + "?protocols=STOMP");
        EmbeddedActiveMQ server = new EmbeddedActiveMQ();
        server.setConfiguration(configuration);
        server.start();
        System.out.println("ready");
        Thread.sleep(Long.MAX_VALUE);
    }
}
