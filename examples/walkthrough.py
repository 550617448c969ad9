"""From log files to the answer, cell by cell; open it as a notebook, or run it as it is.

``LOGS`` is the example estate: four situations in which a bank with two databases and a message
broker was halted in the middle of a transfer. ``spark`` may exist already, as it does in a notebook
of a Spark platform.
"""

# %%
from __future__ import annotations

from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

import tallystick
from tallystick.pipeline.session import start
from tallystick.pipeline.stages import findings, global_transactions, overdue

# %% [markdown]
# # Which global transaction is where?
# A coordinator (Bitronix) and three resources (Derby, H2, Artemis) each keep a log of their own.
# After a crash each log knows a part of the truth. This walk reads all and puts them together.

# %%
LOGS = str(Path(__file__).parent / "estate")

# %% [markdown]
# ## One log, without Spark
# `scan` takes any log of any system: it finds out which one it is.

# %%
journal = f"{LOGS}/mid-phase-two/bitronix"
last = list(tallystick.scan(journal))[-3:]
for record in last:
    print(record.offset, record.type, record.gtrid and record.gtrid.hex())

# %% [markdown]
# `explain` says what a restart of that system would do, and what it should do.

# %%
for verdict in tallystick.explain(journal).logs:
    print(verdict.system, verdict.strict["transactions"])

# %% [markdown]
# ## All logs, with Spark
# The source needs no registration. One line per system: how did its transactions end?

# %%
spark = start("local[*]")
logs = spark.read.format("tallystick")
transactions = logs.option("table", "transactions").load(LOGS).localCheckpoint()
states = transactions.groupBy("system", "state").count().orderBy("system", "state")
states.show()

# %% [markdown]
# ## What only all logs together tell
# `global_transactions` joins them: what was decided, where each branch stands, what is due.

# %%
judged = global_transactions(transactions).localCheckpoint()
due = judged.where("resolution <> 'none'").select(
    F.hex("gtrid").alias("gtrid"), "owner", "decision", "resolution", "alarm"
)
due.show(truncate=False)

# %% [markdown]
# Every judgement carries its evidence: which record in which file at which offset says so.

# %%
mismatch = judged.where("resolution = 'heuristic_mismatch'").select("evidence").first()
print(mismatch and mismatch.evidence)

# %% [markdown]
# ## What to do first
# Findings, gravest first, and the transactions that have been in doubt for more than a second.

# %%
reported = findings(logs.option("table", "findings").load(LOGS), judged).localCheckpoint()
reported.groupBy("severity", "code").count().orderBy("severity", "code").show(truncate=False)

# %%
alerts = overdue(judged, 1.0).select(F.hex("gtrid").alias("gtrid"), "resolution", "age_seconds")
alerts.show(truncate=False)

# %% [markdown]
# `tallystick pipeline run` makes all these tables at once, and `tallystick report` shows them.
