"""Kernels that read rows of a rowset: morsels of a scan, their filters and groups, and single rows.

Not inside: the tables of addresses that they read by, which `rowset/native` fills. Rowsets, tablets, filters,
aggregates and files call them.
"""
