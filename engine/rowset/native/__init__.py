"""Tables of addresses through which kernels read the rows of a rowset: cells, pages, patches, morsels.

Not inside: the kernels (`kernels/reads`, `kernels/cells`), and rowsets themselves. Rowsets, tablets,
scans, compaction and single-row plans use this room.
"""
