"""User data as record batches: rows, frames, filters and keys, with types fitted to a table; and rows on their way to
files and other engines.

Not inside: requests (`flight`), and casts that the store does (`schemas/cells`). All rooms of the clients above use it,
and so do the server's handlers.
"""
