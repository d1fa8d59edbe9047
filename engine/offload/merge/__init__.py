"""Merges that another process does: planned, run, checked, installed beside writes that came meanwhile.

Not inside: merges in the store (`compaction`). Only the store's door and the merging process use it.
"""
