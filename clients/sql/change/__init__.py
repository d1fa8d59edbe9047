"""SQL statements that change rows or tables: each becomes one commit of the store.

Not inside: reading, which the caller hands in as a function that runs a query at a snapshot. `clients/sql` uses it.
"""
