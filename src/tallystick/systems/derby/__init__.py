"""Apache Derby's transaction log, read and written byte for byte (10.1 to 10.17).

In: the files of one log folder and the properties of its database. Out: records, transactions,
row changes and both verdicts, and a live log that Derby boots from.
"""

from __future__ import annotations

from tallystick.records import Clock
from tallystick.systems.protocol import ResourceTraits, Statements, System

_SETTLING = """\
jshell --class-path "$CLASSPATH" - <<'EOF'
import javax.transaction.xa.*;
var database = new org.apache.derby.jdbc.EmbeddedXADataSource();
database.setDatabaseName({database});
var session = database.getXAConnection().getXAResource();
var hex = java.util.HexFormat.of();
for (Xid one : session.recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN)) {{
    if (one.getFormatId() != {format_id}) continue;
    if (!hex.formatHex(one.getGlobalTransactionId()).equals("{gtrid}")) continue;
    if (!hex.formatHex(one.getBranchQualifier()).equals("{bqual}")) continue;
    session.{verb}(one{phase});
    System.out.println("{verb}: done");
}}
EOF"""

_TRUE_OR_FALSE = ("(?i:true|false)", "true or false")

SYSTEM = System(
    name="derby",
    title="Apache Derby",
    detector="tallystick.systems.derby.read.detect:detect",
    reader="tallystick.systems.derby.reader:DerbyReading",
    codes="tallystick.systems.derby.codes:CODES",
    mender="tallystick.systems.derby.live.mend:patches",
    log_owner="tallystick.systems.derby.live.own_log:own_log",
    put_aside="tallystick.systems.derby.read.surroundings:put_aside",
    numbered=True,
    reasons="tallystick.systems.derby.codes:REASONS",
    errors="tallystick.systems.derby.codes:ERRORS",
    sql="tallystick.systems.derby.format.literals:DIALECT",
    clocks=frozenset({Clock.NONE}),
    url_reader="tallystick.systems.derby.read.detect:path_in",
    url_password="tallystick.systems.derby.read.detect:password_in",
    neighbours=frozenset(
        {
            "*.lck",
            "BACKUP.HISTORY",
            "README_DO_NOT_TOUCH_FILES.txt",
            "jar",
            "seg0",
            "service.properties*",
        }
    ),
    folders=frozenset({"log"}),
    change_feed=True,
    commits_by_lsn=True,
    secrets=frozenset({"boot_password", "encryption_key"}),
    settings={
        "derby_version": "the version of the Derby that would boot, as 10.14.2",
        **dict.fromkeys(
            (
                "dataEncryption",
                "encryptionAlgorithm",
                "encryptionKeyLength",
                "encryptedBootPassword",
                "derby.encryptionBlockSize",
                "derby.storage.fileSyncTransactionLog",
                "derby.storage.logSwitchInterval",
            ),
            "a property of the database that service.properties does not give",
        ),
    },
    setting_values={
        "derby_version": (
            r"[0-9]{1,3}(\.[0-9]{1,3}){1,3}",
            "a version of Derby, as 10.14 or 10.14.2",
        ),
        "dataEncryption": _TRUE_OR_FALSE,
        "encryptionAlgorithm": (
            "(DES|DESede|AES|Blowfish)(/(CBC|CFB|OFB|ECB)(/NoPadding)?)?",
            "DES, DESede, AES or Blowfish, as AES/CBC/NoPadding",
        ),
        "encryptionKeyLength": ("[0-9]{1,9}(-[0-9]{1,9})?", "a number of bits, as 128 or 128-16"),
        "encryptedBootPassword": ("[0-9a-fA-F]+-[0-9]+", "hex digits, a dash and a number"),
        "derby.encryptionBlockSize": ("8|16", "8 or 16"),
        "derby.storage.fileSyncTransactionLog": _TRUE_OR_FALSE,
        "derby.storage.logSwitchInterval": ("[0-9]{1,12}", "a number of bytes"),
    },
    resource=ResourceTraits(
        read_only_unlogged=True,
        statements=Statements(
            where="In a shell: Derby has no statement for it, so Java 17 calls its XA interface, "
            "while nothing else has the database open; CLASSPATH names derby.jar (from 10.15 on "
            "derbyshared.jar and derbytools.jar, too)",
            listing="SELECT GLOBAL_XID FROM SYSCS_DIAG.TRANSACTION_TABLE "
            "WHERE STATUS = 'PREPARED';",
            settling=_SETTLING,
        ),
    ),
)
