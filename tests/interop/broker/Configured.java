import java.io.File;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.server.JournalType;

/** What the brokers of these tests have in common. */
class Configured {
    /** A configuration without acceptors, whose files are all below a folder. */
    static ConfigurationImpl below(File folder) {
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
        return configuration;
    }
}
