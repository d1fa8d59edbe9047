"""Jobs that save and compare tables: backup, restore, export, verification, and the check of all servers.

Not inside: copies from store to store, which lie in `jobs`. Only `nyala.jobs` and commands use this room.
"""
