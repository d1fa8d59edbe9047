"""Flushes and merges: rows and deltas into new files, as one change of a tablet's set of files.

Not inside: when they run (`maintenance`), and merges that another process does (`offload/merge`). Tables, the catalog,
maintenance, recovery and `offload` use it.
"""
