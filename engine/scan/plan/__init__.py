"""The plan of a request: its snapshot, its tablets, and the shortest way to its rows.

Inside: the facade of all reads, look-ups of few rows, counts, commits, planned scans. Not inside: reading itself, which
is `scan/read/read_chunk`. The store's door, statements, moves, replicas and `offload` use this room.
"""
