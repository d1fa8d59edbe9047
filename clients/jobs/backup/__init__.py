"""Jobs that save and compare tables: backup, restore, export, verification.

Not inside: copies from store to store, which lie in `jobs`. Only `nyala.jobs` and the command line use this room.
"""
