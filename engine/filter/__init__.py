"""Filters: from SQL text to the rows of a page where it is true, and to the pages and keys that need not be read.

where.py     what a caller gave -> a Predicate (``schemas/predicate.py``)
words.py     SQL text -> words
sql.py       words -> Predicate
bind.py      Predicate + table schema -> BoundFilter: column ids, cells, no NOT
literal.py   where a literal stands among the cells of a column
like.py      LIKE patterns
bound.py     the bound tree and why it needs no third truth value
evaluate.py  BoundFilter + vectors -> one bool a row
prune.py     BoundFilter + zone maps -> may a page match; + key columns -> the range of keys
"""
