"""Encodings of pages and rows: choice, layout, compression, checksums.

Not inside: the loops (`kernels/pages`), and files of pages (`cfile`). Files, deltas and the log use it.
"""
