"""Errors as Flight carries them, callers that are gone, and the log of requests.

Not inside: the errors themselves (`schemas/errors`). All rooms of the server may use it.
"""
