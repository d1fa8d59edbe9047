"""Statements: `update_where`, `delete_where` and `restore`, from a snapshot to one commit.

Not inside: the language of expressions (`expression`). Only the store's door uses it.
"""
