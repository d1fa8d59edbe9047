"""Types of columns and the values of cells: literals, decimals without rounding, moments, casts.

Not inside: columns as parts of a table (`table`), and vectors of cells, which are the engine's.
All rooms of schemas above use it, as do the engine, servers and clients.
"""
