"""One server behind Arrow Flight, as a `StoreService`: calls, sessions, retries, staged writes.

Not inside: a store of several servers (`cluster`). All rooms of the clients above use it, and so do servers that ask
others.
"""
