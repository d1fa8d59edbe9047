"""Calls into gRPC's C library that pyarrow does not offer, made of ctypes and a few instructions.

Not inside: what they are for. Security, requests, handlers, the server and the HTTP port use it.
"""
