"""One global transaction over many logs: who decides, what each resource holds, what is due.

In: what single logs say of one (format id, gtrid). Out: a judgement with its evidence.
Plain Python, without Spark and without I/O.

* `ids`: the coordinator's id inside a gtrid
* `resources`: which log belongs to which resource name, from what occurs together
* `decision_table`: what is due; `rows`: the same over Arrow structures
* `coordinators`: whose transaction it is; `copies`: which logs are copies of others
"""
