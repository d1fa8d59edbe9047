"""Filters: from the tree of an expression to the rows of a page that match, and to pages and keys that can be skipped.

where.py     the caller's filter -> a tree (``expression/tree.py``)
bind.py      tree + table schema -> BoundFilter: column ids, cells, no NOT
like.py      LIKE on a column
bound.py     the bound tree and why it needs no third truth value
evaluate.py  BoundFilter + vectors -> one bool a row
lookup.py    the list of an IN, ready to be searched
steps.py     BoundFilter -> steps of a kernel
few.py, points.py  BoundFilter -> the primary keys that it lists
expiry.py    the option ``ttl`` -> a filter without expired rows
compiled.py  all of this for a caller's filter, remembered
prune.py     BoundFilter + zone maps -> may a page match; + key columns -> the range of keys
"""
