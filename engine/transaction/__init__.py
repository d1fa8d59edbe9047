"""Transactions: parts that clients stage, collapsed and committed as one.

`staging` keeps the parts. Not inside: commits of a single batch (`table`). Only the store's door uses it.
"""
