"""Which tablet a row belongs to, and which tablets a filter can leave out.

Not inside: the definition of partitions (`schemas/table`). Tables, scans, rowsets, the catalog and recovery use it.
"""
