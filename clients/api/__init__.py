"""The classes that users touch: database, table, transaction, scan; and tables as frames of polars and DataFusion.

It is the same over an embedded store and over Flight, since both are a `StoreService`. Not inside: the connection
(`flight`, `cluster`) and the conversion of user data (`convert`). `nyala` and all rooms of the clients above use it.
"""
