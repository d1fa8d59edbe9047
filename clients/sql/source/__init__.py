"""A table as a source of engines that speak SQL: DataFusion, DuckDB, polars and pyarrow.

Inside: the dataset that they read, and their filters, read in SQL's logic. Not inside: statements. `clients/sql` and
`clients/api` use it.
"""
