"""The definition of a table: names, columns, partitions, options, and the steps that alter it.

Not inside: values and types of single cells (`cells`), and anything about rows (`rows`).
The engine, servers and clients use it.
"""
