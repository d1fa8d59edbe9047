"""Staged parts on disk, before their transaction commits.

Not inside: the commit (`transaction`). Only `transaction` and recovery use it.
"""
