import java.io.ByteArrayInputStream;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Random;
import org.apache.activemq.artemis.api.core.Message;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.api.core.TransportConfiguration;
import org.apache.activemq.artemis.api.core.client.*;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.remoting.impl.invm.InVMAcceptorFactory;
import org.apache.activemq.artemis.core.remoting.impl.invm.InVMConnectorFactory;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;
import org.apache.activemq.artemis.utils.collections.TypedProperties;

/** Sends random messages to an embedded broker, takes some: Messages FOLDER SEED COUNT END, where END is halt or stop. Prints what it did. */
public class Messages {
    public static void main(String[] args) throws Exception {
        Random random = new Random(Long.parseLong(args[1]));
        ConfigurationImpl configuration = Configured.below(new File(args[0]));
        configuration.addAcceptorConfiguration(new TransportConfiguration(InVMAcceptorFactory.class.getName()));
        EmbeddedActiveMQ server = new EmbeddedActiveMQ();
        server.setConfiguration(configuration);
        server.start();
        ServerLocator locator = ActiveMQClient.createServerLocatorWithoutHA(
            new TransportConfiguration(InVMConnectorFactory.class.getName()));
        ClientSession session = locator.createSessionFactory().createSession(false, false, 0);
        session.createQueue(QueueConfiguration.of("orders").setAddress("orders").setRoutingType(RoutingType.ANYCAST));
        for (String queue : new String[] {"left", "right"})
            session.createQueue(QueueConfiguration.of(queue).setAddress("news").setRoutingType(RoutingType.MULTICAST)
                .setFilterString("n > 2"));
        ClientProducer producer = session.createProducer();
        for (int n = 1; n <= Integer.parseInt(args[2]); n++) {
            send(session, producer, random, n);
            if (n % 3 == 0) session.commit();
            if (n % 20 == 10) session.rollback();
        }
        session.commit();
        session.start();
        ClientConsumer consumer = session.createConsumer("orders");
        for (int k = 0; k < 5; k++) {
            ClientMessage message = consumer.receive(5_000);
            message.acknowledge();
            System.out.println("TAKEN\t" + message.getIntProperty("n"));
        }
        session.commit();
        if (args[3].equals("stop")) server.stop();
        Runtime.getRuntime().halt(0);
    }

    static void send(ClientSession session, ClientProducer producer, Random random, int n) throws Exception {
        byte[] types = {Message.DEFAULT_TYPE, Message.TEXT_TYPE, Message.BYTES_TYPE, Message.MAP_TYPE};
        byte type = types[n % types.length];
        boolean durable = random.nextInt(5) > 0, large = n % 17 == 0;
        long expiration = random.nextBoolean() ? 0 : 4_000_000_000_000L + n;
        ClientMessage message = session.createMessage(type, durable, expiration, 1_700_000_000_123L + n, (byte) (n % 10));
        message.putIntProperty("n", n);
        message.putStringProperty("text", "naïve € " + n);
        message.putBooleanProperty("flag", n % 2 == 0);
        message.putLongProperty("long", -n);
        message.putDoubleProperty("double", n / 4.0);
        message.putBytesProperty("bytes", new byte[] {1, (byte) n});
        message.putStringProperty(SimpleString.of("null"), (SimpleString) null);
        byte[] body = new byte[random.nextInt(300)];
        random.nextBytes(body);
        String text = "";
        if (large) {
            message.setBodyInputStream(new ByteArrayInputStream(new byte[300_000]));
        } else if (type == Message.TEXT_TYPE) {
            text = "text é € \ud83d\ude00 " + HexFormat.of().formatHex(body);
            message.getBodyBuffer().writeNullableSimpleString(SimpleString.of(text));
        } else if (type == Message.MAP_TYPE) {
            TypedProperties map = new TypedProperties();
            map.putSimpleStringProperty(SimpleString.of("k"), SimpleString.of("v" + n));
            map.encode(message.getBodyBuffer().byteBuf());
            text = "{\"k\": \"v" + n + "\"}";
        } else {
            message.getBodyBuffer().writeBytes(body);
        }
        String address = n % 4 == 3 ? "news" : "orders";
        producer.send(address, message);
        System.out.println(String.join("\t", "SENT", "" + n, address, large ? "large" : "", "" + type, "" + durable,
            "" + n % 10, "" + (1_700_000_000_123L + n), "" + expiration, HexFormat.of().formatHex(body),
            HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8))));
        if (n % 20 == 10) System.out.println("LOST\t" + n);
    }
}
