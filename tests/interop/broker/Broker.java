import java.io.File;
import org.apache.activemq.artemis.core.config.impl.ConfigurationImpl;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;

/** A broker that speaks STOMP on a port of loopback: Broker FOLDER PORT. Prints "ready". */
public class Broker {
    public static void main(String[] args) throws Exception {
        ConfigurationImpl configuration = Configured.below(new File(args[0]));
        configuration.addAcceptorConfiguration(
            "stomp", "tcp://127.0.0.1:" + args[1] + "?protocols=STOMP");
        EmbeddedActiveMQ server = new EmbeddedActiveMQ();
        server.setConfiguration(configuration);
        server.start();
        System.out.println("ready");
        Thread.sleep(Long.MAX_VALUE);
    }
}
