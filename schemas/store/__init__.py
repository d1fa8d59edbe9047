"""Messages about a store as a whole: where it lies, its key, its state, its files, its grants.

Inside: descriptions and health, metrics, placement, moves, imports, pins, checkpoints. Not inside: what a table is
(`table`) and its rows (`rows`). The engine, servers and clients use it.
"""
