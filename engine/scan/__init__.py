"""Scans: from a request to batches of rows at one snapshot.

`plan` decides how a request is read; `read` reads the tablets. Nothing else is here. The store's door, statements,
moves, replicas and `offload` use it.
"""
