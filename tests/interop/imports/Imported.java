import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.FileInputStream;
import java.util.HexFormat;
import java.util.TreeSet;
import org.apache.activemq.artemis.api.core.*;
import org.apache.activemq.artemis.api.core.client.*;
import org.apache.activemq.artemis.cli.commands.tools.xml.XmlDataImporter;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.remoting.impl.invm.InVMAcceptorFactory;
import org.apache.activemq.artemis.core.remoting.impl.invm.InVMConnectorFactory;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;

/** Starts a broker and takes all messages: Imported FOLDER XML QUEUE... imports XML before, or nothing for "-". Prints queues and messages. */
public class Imported {
    public static void main(String[] args) throws Exception {
        ConfigurationImpl configuration = Configured.below(new File(args[0]));
        configuration.addAcceptorConfiguration(new TransportConfiguration(InVMAcceptorFactory.class.getName()));
        EmbeddedActiveMQ server = new EmbeddedActiveMQ();
        server.setConfiguration(configuration);
        server.start();
        ServerLocator locator = ActiveMQClient.createServerLocatorWithoutHA(
            new TransportConfiguration(InVMConnectorFactory.class.getName()));
        ClientSession session = locator.createSessionFactory().createSession(true, true, 0);
        if (!args[1].equals("-"))
            try (FileInputStream in = new FileInputStream(args[1])) {
                new XmlDataImporter().process(in, session);
            }
        session.start();
        for (int n = 2; n < args.length; n++) {
            ClientSession.QueueQuery queue = session.queueQuery(SimpleString.of(args[n]));
            System.out.println(String.join("\t", "QUEUE", plain(args[n]), "" + queue.getAddress(), "" + queue.getRoutingType(),
                "" + queue.getFilterString(), "" + queue.isDurable()));
            try (ClientConsumer consumer = session.createConsumer(args[n])) {
                for (ClientMessage message; (message = consumer.receiveImmediate()) != null;) {
                    System.out.println("MESSAGE\t" + plain(args[n]) + "\t" + shown(message));
                    message.acknowledge();
                }
            }
        }
        Runtime.getRuntime().halt(0);
    }

    static String plain(String text) {
        return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t");
    }

    static String shown(ClientMessage message) throws Exception {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        if (message.isLargeMessage()) {
            message.saveToOutputStream(body);
        } else {
            byte[] bytes = new byte[message.getBodyBuffer().readableBytes()];
            message.getBodyBuffer().readBytes(bytes);
            body.write(bytes);
        }
        TreeSet<String> properties = new TreeSet<>();
        for (SimpleString name : message.getPropertyNames()) {
            Object value = message.getObjectProperty(name);
            String text = value instanceof byte[] bytes ? HexFormat.of().formatHex(bytes) : "" + value;
            properties.add(plain("" + name) + " " + (value == null ? "" : value.getClass().getSimpleName()) + " " + plain(text));
        }
        return String.join("\t", "" + message.getType(), "" + message.isDurable(), "" + message.getExpiration(), "" + message.getTimestamp(),
            "" + message.getPriority(), "" + message.isLargeMessage(), String.join(";", properties), HexFormat.of().formatHex(body.toByteArray()));
    }
}
