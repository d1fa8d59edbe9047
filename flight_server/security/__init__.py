"""The identity of callers, and their rights: tokens, certificates, grants, audit.

Not inside: the grants themselves, which the engine keeps. The server, handlers, `requests` and the HTTP port use it.
"""
