"""Who calls, and what that caller may do: tokens, certificates, grants, audit.

Not inside: the grants themselves, which the engine keeps. The server, handlers, `requests` and the HTTP port use it.
"""
