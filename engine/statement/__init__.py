"""Statements: `update_where`, `delete_where` and `restore`, from a snapshot to one commit.

Not inside: the language of expressions (`expression`). The store's door and the server's rights use it.
"""
