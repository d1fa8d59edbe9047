"""The file that lists a store's tables, tablets and files, and which of them are damaged.

Not inside: the tables as objects (`catalog`). Most rooms of the engine above use it.
"""
