"""Tables as sources of engines that speak SQL: pushed filters, datasets, and lazy scans.

Inside: what DataFusion, DuckDB and polars ask of a table, with their filters read in SQL's logic. Not inside: the
filters that users write (`convert`), and the connection (`flight`, `cluster`). `api` uses it, for the lazy reads of
tables. DataFusion, DuckDB and polars are imported only where they are asked for.
"""
