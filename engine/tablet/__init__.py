"""A tablet: one MemRowSet, DiskRowSets by key, and the application of changes to them.

Not inside: the routing of rows to tablets (`partition`, `table`). Every room of the engine above uses it.
"""
