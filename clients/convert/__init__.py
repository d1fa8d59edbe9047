"""User data as record batches: rows, frames, filters and keys, with types fitted to a table.

Not inside: requests (`flight`), and casts that the store does (`schemas/cells`). The API, jobs and Spark use it.
"""
