"""Stores that a server serves in place of an engine's own: absent ones, replicas, gateways to others.

Not inside: stores on a disk or in a bucket (`engine`). `serve`, `server`, `runtime` and the console use it.
"""
