"""Imports: rowset files built outside are checked and attached as one commit.

Not inside: loads by writes (`table`). Only the store's door and the builders of such files use it.
"""
