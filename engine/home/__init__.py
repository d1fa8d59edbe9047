"""Where a store lives, a directory or a bucket, and what it needs of that place.

Not inside: file systems (`fs`), object stores (`bucket`), and the log of slots (`wal/slots`). Tablets, recovery and
the store's door use it.
"""
