"""Kernels that read rows of a rowset: morsels of a scan, their filters and groups, and single rows with
the deltas in memory that they see.

Not inside: the tables of addresses that they read by, which `rowset/native` fills. Rowsets, deltas, tablets, filters,
aggregates and files call them.
"""
