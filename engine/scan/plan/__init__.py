"""The plan of a request: its snapshot, its tablets, and the shortest way to its rows.

Inside: `choose`, which gives each read its way, the ways themselves, plans in parts, counts, commits. Not inside:
reading of chunks, which is `scan/read`. The store's door, statements, moves, replicas and `offload` use this room.
"""
