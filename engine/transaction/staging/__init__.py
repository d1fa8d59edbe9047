"""Staged parts on disk, before their transaction commits.

Not inside: the commit (`transaction`). Transactions, recovery, moves and the store's door use it.
"""
