import com.arjuna.ats.arjuna.common.Uid;
import com.arjuna.ats.arjuna.state.InputObjectState;
import com.arjuna.ats.arjuna.state.OutputObjectState;
import com.arjuna.ats.internal.arjuna.objectstore.hornetq.HornetqJournalEnvironmentBean;
import com.arjuna.ats.internal.arjuna.objectstore.hornetq.HornetqJournalStore;

/**
 * Narayana's journal store: write FOLDER COUNT, or list FOLDER.
 *
 * write: COUNT states of type "Test/Kind", every third rewritten, every fifth removed.
 * list: each state as "Uid text".
 */
public final class Store {
   private static final String KIND = "Test/Kind";

   public static void main(String[] args) {
      try {
         run(args);
         System.exit(0);
      } catch (Throwable e) {
         e.printStackTrace();
         System.exit(1);
      }
   }

   private static void run(String[] args) throws Exception {
      HornetqJournalEnvironmentBean settings = new HornetqJournalEnvironmentBean();
      settings.setStoreDir(args[1]);
      settings.setAsyncIO(false);
      HornetqJournalStore store = new HornetqJournalStore(settings);
      store.start();
      if (args[0].equals("write")) {
         write(store, Integer.parseInt(args[2]));
      }
      for (Uid uid : store.getUidsForType(KIND)) {
         InputObjectState state = store.read_committed(uid, KIND);
         System.out.println("state " + uid.stringForm() + " " + state.unpackString());
      }
      store.stop();
   }

   private static void write(HornetqJournalStore store, int count) throws Exception {
      for (int i = 0; i < count; i++) {
         Uid uid = new Uid();
         put(store, uid, "first " + i);
         if (i % 3 == 0) {
            put(store, uid, "second " + i);
         }
         if (i % 5 == 0) {
            store.remove_committed(uid, KIND);
         }
      }
   }

   private static void put(HornetqJournalStore store, Uid uid, String text) throws Exception {
      OutputObjectState state = new OutputObjectState();
      state.packString(text);
      store.write_committed(uid, KIND, state);
   }
}
