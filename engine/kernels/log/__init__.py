"""Kernels over records of the write-ahead log: groups, parts, and replay in batches.

Not inside: files of the log (`wal`). `wal`, `record`, `commit` and `tablet` call them.
"""
