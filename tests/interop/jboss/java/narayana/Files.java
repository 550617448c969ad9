import com.arjuna.ats.arjuna.common.ObjectStoreEnvironmentBean;
import com.arjuna.ats.arjuna.common.Uid;
import com.arjuna.ats.arjuna.common.arjPropertyManager;
import com.arjuna.ats.arjuna.common.recoveryPropertyManager;
import com.arjuna.ats.arjuna.objectstore.ObjectStoreIterator;
import com.arjuna.ats.arjuna.objectstore.RecoveryStore;
import com.arjuna.ats.arjuna.objectstore.StoreManager;
import com.arjuna.ats.arjuna.recovery.RecoveryManager;
import com.arjuna.ats.arjuna.state.InputObjectState;
import com.arjuna.ats.internal.arjuna.common.UidHelper;
import com.arjuna.common.internal.util.propertyservice.BeanPopulator;
import jakarta.transaction.TransactionManager;
import java.io.PrintStream;
import java.io.Serializable;
import java.util.HexFormat;
import java.util.List;
import javax.transaction.xa.XAException;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;

/**
 * Narayana on one of its stores of files: write | list | recover, STORE, FOLDER, [TRANSACTION...].
 *
 * "write" runs the transactions that are named, of two branches each: "both" commits, of
 * "heuristic" the second has rolled back, of "mixed" both say so, of "failed" the second does not
 * answer, "undone" does not prepare, and "halted" ends the process in its first commit. "list"
 * prints what Narayana lists, "recover" has the recovery manager scan twice and prints what the
 * branches, which then all commit, are told.
 */
public final class Files {
   public static PrintStream out = System.out;
   private static boolean writes;

   public static void main(String[] args) throws Exception {
      run(args);
      out.flush();
      Runtime.getRuntime().halt(0);
   }

   public static void run(String[] args) throws Exception {
      for (String name : new String[] {null, "communicationStore", "stateStore"}) {
         ObjectStoreEnvironmentBean settings = BeanPopulator.getNamedInstance(ObjectStoreEnvironmentBean.class, name);
         settings.setObjectStoreType("com.arjuna.ats.internal.arjuna.objectstore." + args[1]);
         settings.setObjectStoreDir(args[2]);
      }
      arjPropertyManager.getCoreEnvironmentBean().setNodeIdentifier("node");
      if (args[0].equals("recover")) {
         recover();
      } else if (args[0].equals("write")) {
         writes = true;
         write(args);
      }
      list();
   }

   private static void write(String[] args) throws Exception {
      TransactionManager manager = com.arjuna.ats.jta.TransactionManager.transactionManager();
      for (int i = 3; i < args.length; i++) {
         manager.begin();
         manager.getTransaction().enlistResource(new Branch(args[i], "first"));
         manager.getTransaction().enlistResource(new Branch(args[i], "second"));
         try {
            manager.commit();
            out.println("committed " + args[i]);
         } catch (Exception e) {
            out.println(e.getClass().getSimpleName() + " " + args[i]);
         }
      }
   }

   private static void recover() throws Exception {
      recoveryPropertyManager.getRecoveryEnvironmentBean().setRecoveryModuleClassNames(List.of(
         "com.arjuna.ats.internal.arjuna.recovery.AtomicActionRecoveryModule",
         "com.arjuna.ats.internal.jta.recovery.arjunacore.XARecoveryModule"));
      recoveryPropertyManager.getRecoveryEnvironmentBean().setRecoveryBackoffPeriod(1);
      RecoveryManager manager = RecoveryManager.manager(RecoveryManager.DIRECT_MANAGEMENT);
      manager.scan();
      manager.scan();
   }

   private static void list() throws Exception {
      RecoveryStore store = StoreManager.getRecoveryStore();
      InputObjectState types = new InputObjectState();
      store.allTypes(types);
      for (String type = types.unpackString(); !type.isEmpty(); type = types.unpackString()) {
         ObjectStoreIterator found = new ObjectStoreIterator(store, type);
         for (Uid uid = found.iterate(); uid.notEquals(Uid.nullUid()); uid = found.iterate()) {
            out.println("state " + type + " " + uid.stringForm() + " " + store.currentState(uid, type));
         }
      }
   }

   /** A branch that says what it is told. */
   public static final class Branch implements XAResource, Serializable {
      private final String transaction;
      private final String name;

      Branch(String transaction, String name) {
         this.transaction = transaction;
         this.name = name;
      }

      private void say(String what, Xid xid) {
         HexFormat hex = HexFormat.of();
         out.println(what + " " + transaction + " " + name + " " + xid.getFormatId() + " "
            + hex.formatHex(xid.getGlobalTransactionId()) + " " + hex.formatHex(xid.getBranchQualifier()));
      }

      @Override
      public int prepare(Xid xid) throws XAException {
         say("prepare", xid);
         if (transaction.equals("undone") && name.equals("second")) {
            throw new XAException(XAException.XA_RBROLLBACK);
         }
         return XA_OK;
      }

      @Override
      public void commit(Xid xid, boolean onePhase) throws XAException {
         say("commit", xid);
         if (!writes) {
            return;
         }
         if (transaction.equals("halted")) {
            out.flush();
            Runtime.getRuntime().halt(0);
         }
         boolean second = name.equals("second");
         if (transaction.equals("mixed") || transaction.equals("heuristic") && second) {
            throw new XAException(XAException.XA_HEURRB);
         }
         if (transaction.equals("failed") && second) {
            throw new XAException(XAException.XAER_RMFAIL);
         }
      }

      @Override
      public void rollback(Xid xid) {
         say("rollback", xid);
      }

      @Override
      public void forget(Xid xid) {
         say("forget", xid);
      }

      @Override
      public void start(Xid xid, int flags) {}

      @Override
      public void end(Xid xid, int flags) {}

      @Override
      public Xid[] recover(int flag) {
         return new Xid[0];
      }

      @Override
      public boolean isSameRM(XAResource other) {
         return other == this;
      }

      @Override
      public int getTransactionTimeout() {
         return 0;
      }

      @Override
      public boolean setTransactionTimeout(int seconds) {
         return false;
      }
   }
}
