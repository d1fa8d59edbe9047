"""Pins: files of a snapshot are kept for readers that open them without the server.

Not inside: scans through the server (`scan`). Only the store's door and such readers use it.
"""
