"""Opening a store after any end: replay of the log, verification, dumps, and sweeping a bucket.

`repair` saves what can be saved of damaged files. Not inside: the log's format (`wal`). The store's door, replicas,
copies and commands use it.
"""
