"""The file that lists a store's tables, tablets and files, and which of them are damaged.

`environment` has what all tablets of a store share: the disk, the budget of key indexes, the counts of work. Not
inside: the tables as objects (`catalog`). Most rooms of the engine above use it.
"""
