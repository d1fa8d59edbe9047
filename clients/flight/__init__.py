"""One server behind Arrow Flight, as a `StoreService`: calls, sessions, retries, staged writes.

Not inside: a store of several servers (`cluster`). The API, `cluster` and Spark use it.
"""
