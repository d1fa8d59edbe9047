"""Kernels over encoded primary keys: encoding, comparison, search, hashes, sorting and merging.

Not inside: vectors of keys, which `vectors/keys` owns. Vectors, rowsets, partitions and filters call them.
"""
