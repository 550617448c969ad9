import java.io.File;
import org.apache.activemq.artemis.api.core.*;
import org.apache.activemq.artemis.api.core.client.*;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.remoting.impl.invm.InVMAcceptorFactory;
import org.apache.activemq.artemis.core.remoting.impl.invm.InVMConnectorFactory;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;

/** Sends messages that XML has trouble with, and stops: Odd FOLDER. Prints each one. */
public class Odd {
    interface Filled {
        void fill(ClientMessage message) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        ConfigurationImpl configuration = Configured.below(new File(args[0]));
        configuration.addAcceptorConfiguration(new TransportConfiguration(InVMAcceptorFactory.class.getName()));
        EmbeddedActiveMQ server = new EmbeddedActiveMQ();
        server.setConfiguration(configuration);
        server.start();
        ClientSession session = ActiveMQClient.createServerLocatorWithoutHA(
            new TransportConfiguration(InVMConnectorFactory.class.getName())).createSessionFactory().createSession(true, true, 0);
        session.createQueue(QueueConfiguration.of("a <b> & \"c\" é\n").setAddress("x & y").setRoutingType(RoutingType.ANYCAST)
            .setFilterString("AMQSize >= 0 AND n <> 'it''s <&>'"));
        ClientProducer producer = session.createProducer("x & y");
        byte[] packed = {31, (byte) 139, 8, 0, 31, (byte) 139, 1, 2, 3};
        Filled[] every = {
            one -> one.getBodyBuffer().writeBytes(packed),
            one -> one.putStringProperty("a <b> & \"c'\n", " <&>\"'\r\n\té€\ud83d\ude00]]> "),
            one -> one.putDoubleProperty("d", Double.NaN).putFloatProperty("f", Float.NEGATIVE_INFINITY),
            one -> one.putDoubleProperty("d", Double.MIN_VALUE).putFloatProperty("f", 0.1f),
            one -> one.putShortProperty("s", Short.MIN_VALUE).putByteProperty("b", Byte.MIN_VALUE),
            one -> one.putLongProperty("l", Long.MIN_VALUE).putBooleanProperty("t", true),
            one -> one.putBytesProperty("b", new byte[] {-1, -2, -3, 62, 63}).putStringProperty("", ""),
            one -> one.putBytesProperty("packed", packed),
            one -> one.putStringProperty("control", "\u0001"),
            one -> one.putStringProperty("half", "\ud800"),
            one -> one.putStringProperty("null", "_AMQ_NULL"),
            one -> one.putCharProperty("char", 'x'),
        };
        for (int n = 0; n < every.length; n++) {
            ClientMessage message = session.createMessage(Message.BYTES_TYPE, true);
            message.putIntProperty("n", n);
            every[n].fill(message);
            producer.send(message);
        }
        server.stop();
        Runtime.getRuntime().halt(0);
    }
}
