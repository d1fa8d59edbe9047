"""The home of a store, a directory or a bucket, and the services that it offers.

Not inside: file systems (`fs`), object stores (`bucket`), and the log of slots (`wal/slots`). The store's door,
recovery, replicas, moves, copies and servers use it.
"""
