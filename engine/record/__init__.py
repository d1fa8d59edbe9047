"""Records of the log: changes of rows and notes, as bytes.

Not inside: the log's files and groups (`wal`). Commits, tablets, tables, transactions and recovery use it.
"""
