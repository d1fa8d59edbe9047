"""The plan lane, for few rows: plans of writes and reads that are made once for a version of a table, and queues.

Not inside: the batch lane (`table`), which takes all that a plan refuses. The store's front uses it.
"""
