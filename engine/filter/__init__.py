"""Filters: from SQL text to the matching rows of a page, and to the pages and keys that can be skipped.

where.py     the caller's filter -> a Predicate (``schemas/predicate.py``)
words.py     SQL text -> words
sql.py       words -> Predicate
bind.py      Predicate + table schema -> BoundFilter: column ids, cells, no NOT
literal.py   the place of a literal among the cells of a column
like.py      LIKE patterns
bound.py     the bound tree and why it needs no third truth value
evaluate.py  BoundFilter + vectors -> one bool a row
prune.py     BoundFilter + zone maps -> may a page match; + key columns -> the range of keys
"""
