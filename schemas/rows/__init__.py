"""Requests that read or change rows, and their answers: scans, predicates, writes, transactions, feeds.

Not inside: the definition of a table (`table`), and the text of expressions, which `engine/expression` parses.
The engine, servers and clients use it.
"""
