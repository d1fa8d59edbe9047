"""SQL over a store, in this process or behind Arrow Flight, and tables as sources of engines that speak SQL.

Inside: queries, which DataFusion runs (`engine`), with integers that do not wrap around (`overflow`); statements that
change rows and tables (`change`); transactions (`session`); the tables that DataFusion finds by name (`catalog`); the
reads of tables (`leaves`); and what DataFusion, DuckDB and polars ask of a table (`source`). Not inside: the filters
that users write (`convert`), and the connection (`flight`, `cluster`). `api` and the server's `sql` use it. The engines
are imported only where they are asked for.
"""
