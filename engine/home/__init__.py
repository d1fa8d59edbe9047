"""Where a store lives, a directory or a bucket, and what it needs of that place.

Not inside: file systems (`fs`), object stores (`bucket`), and the log of slots (`wal/slots`). The store's door,
recovery, replicas, moves, copies and servers use it.
"""
