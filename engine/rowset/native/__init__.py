"""Tables of addresses through which kernels read the rows of a rowset: cells, pages, patches, morsels.

Not inside: the kernels (`kernels/reads`, `kernels/cells`), and rowsets themselves. Only `rowset` and the readers of
`scan/read/read_chunk` use this room.
"""
