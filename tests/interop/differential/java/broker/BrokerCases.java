import java.io.File;
import java.util.zip.CRC32;
import org.apache.activemq.artemis.api.core.ActiveMQBuffer;
import org.apache.activemq.artemis.api.core.Message;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.server.JournalType;
import org.apache.activemq.artemis.core.server.Queue;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;

/** What a start of the broker keeps in damaged data directories: each message, with its body. */
public final class BrokerCases extends Cases {
    private static final String[] QUEUES = {"fast", "slow", "stuck"};

    /** open LIMIT. */
    public static void main(String[] args) throws Exception {
        new BrokerCases().serve(Long.parseLong(args[1]));
    }

    @Override protected void tell(String path) throws Exception {
        ConfigurationImpl configuration = new ConfigurationImpl();
        File folder = new File(path);
        configuration.setJournalDirectory(new File(folder, "journal").getPath());
        configuration.setBindingsDirectory(new File(folder, "bindings").getPath());
        configuration.setPagingDirectory(new File(folder, "paging").getPath());
        configuration.setLargeMessagesDirectory(new File(folder, "large").getPath());
        configuration.setJournalType(JournalType.NIO);
        configuration.setJournalFileSize(size(new File(folder, "journal")));
        configuration.setMaxDiskUsage(-1);
        configuration.setSecurityEnabled(false);
        EmbeddedActiveMQ server = new EmbeddedActiveMQ();
        server.setConfiguration(configuration);
        server.start();
        try {
            if (!server.getActiveMQServer().isActive()) {
                throw new IllegalStateException("not active");
            }
            say("opened", "");
            for (String name : QUEUES) {
                Queue queue = server.getActiveMQServer().locateQueue(name);
                if (queue == null) continue;
                try (var messages = queue.browserIterator()) {
                    while (messages.hasNext()) {
                        Message message = messages.next().getMessage();
                        say(name + "/" + message.getMessageID(), body(message));
                    }
                }
            }
        } finally {
            server.stop();
        }
    }

    private static int size(File journal) {
        File[] found = journal.listFiles((folder, name) -> name.endsWith(".amq"));
        long size = 0;
        for (File one : found == null ? new File[0] : found) size = Math.max(size, one.length());
        return size == 0 ? 100 << 10 : (int) size;
    }

    private static String body(Message message) {
        if (message.isLargeMessage()) {
            return "large:" + message.toCore().getBodyBufferSize();
        }
        ActiveMQBuffer buffer = message.toCore().getReadOnlyBodyBuffer();
        byte[] bytes = new byte[buffer.readableBytes()];
        buffer.readBytes(bytes);
        CRC32 sum = new CRC32();
        sum.update(bytes);
        return bytes.length + ":" + sum.getValue();
    }
}
