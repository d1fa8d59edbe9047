"""A table: received batches are checked, routed and applied to its tablets as one commit.

`small` has the plan lane, for few rows. Not inside: tablets and their rowsets (`tablet`), the order of commits
(`commit`), scans (`scan`). Transactions, maintenance and the catalog use it.
"""
