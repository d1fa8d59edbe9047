"""Upkeep: which work is due, in which order, at which cost, and when it rests.

Not inside: the work itself (`compaction`). The store's door uses it, and so does each room whose work it plans or holds
up.
"""
