"""The file that lists a store's tables, tablets and files, and which of them are damaged.

Not inside: the tables as objects (`catalog`). Tablets, tables, recovery and moves use it.
"""
