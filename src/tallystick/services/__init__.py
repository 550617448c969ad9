"""What lives on a log, each written against a role, never against a system.

In: calls of an application. Out: records appended to a log through one of the roles in
`roles`, and on restart the state those records prove.
"""
