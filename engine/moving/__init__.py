"""Tablets that move to another server: rounds of copies, the hand-over, and its repeat after a failure.

Not inside: plans of moves (`clients/cluster`). Only the store's door uses it.
"""
