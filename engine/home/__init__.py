"""The home of a store, a directory or a bucket, and the services that it offers.

Here are also the manifests of a store in a bucket, and the marks of a checkpoint's directory and of a copy in a bucket;
and `holding`, which says whether this process still has the store. Not inside: file systems (`fs`), object stores
(`bucket`), and the log of slots (`wal/slots`). The store's door, recovery, replicas, moves, copies and servers use it.
"""
