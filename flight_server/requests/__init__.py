"""The common part of all calls: admission and end, received batches, records of past requests, metrics, traces.

Not inside: what a call does (`handlers`). Handlers, the server and the HTTP port use it.
"""
