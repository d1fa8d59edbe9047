"""Limits of a store, budgets that all requests share, the share that one user may take of them, and the memory that a
process may use (`usable`).

Not inside: the admission of calls, which is the server's. The engine, servers and all rooms of schemas above use it.
"""
