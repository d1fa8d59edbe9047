"""Records of the log: changes of rows and notes, as bytes.

Not inside: the log's files and groups (`wal`). The log, commits, tablets and recovery use it.
"""
