"""One global transaction over many logs: who decides, what each resource holds, what is due.

In: what single logs say of one (format id, gtrid). Out: a judgement with its evidence.
Plain Python, without Spark and without I/O.

* `ids`: who made a gtrid, and how it is spelled; `gid`: as PostgreSQL knows it
* `resources`: which log belongs to which resource name, from what occurs together
* `copies`: which logs are copies of others; `nameless`: branches that lost their names
* `coordinators`: whose transaction it is; `coverage`: what absence from its log proves
* `decision_table`: what is due; `rows`: the same over plain rows; `alarms`: warnings about it
* `estate`: all of these over the logs of one process; `structures`: over Arrow arrays, for Spark
"""
