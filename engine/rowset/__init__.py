"""Rowsets: the MemRowSet and DiskRowSets of a tablet, with their keys and the reading of their rows.

Not inside: the columns of a file (`cfile`), deltas (`delta`), the tablet that has the rowsets (`tablet`). `native` has
the tables of addresses that kernels read. Tablets and most rooms above use this room.
"""
