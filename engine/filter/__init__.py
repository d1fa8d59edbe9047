"""Filters: from the tree of an expression to the rows of a page that match, and to pages and keys that can be skipped.

where.py     the caller's filter -> a tree (``expression/tree.py``)
bind.py      tree + table schema -> BoundFilter: column ids, cells, no NOT
like.py      LIKE on a column
bound.py     the bound tree and why it needs no third truth value
evaluate.py  BoundFilter + vectors -> one bool a row
prune.py     BoundFilter + zone maps -> may a page match; + key columns -> the range of keys
"""
