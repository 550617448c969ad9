"""The native log shared by processes: one of them writes it, all others hand over to that one.

In: items from threads and tasks of many processes. Out: tickets, as of a log that one process has
open. `log.SharedTallyLog` has the calls of `TallyLog`; `service` is what the leader does with what
the members (`tallystick.storage.shared`) hand over; each of them reads the files for itself.
"""
