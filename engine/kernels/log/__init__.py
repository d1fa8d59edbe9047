"""Kernels over records of the write-ahead log: groups, parts, and replay in batches.

Not inside: files of the log (`wal`). `wal`, `commit` and `recovery` call them.
"""
