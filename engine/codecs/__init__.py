"""Encodings of pages and rows: choice, layout, compression, checksums.

Not inside: the loops (`kernels/pages`), and files of pages (`cfile`). Every room above that reads or writes pages or
rows uses it.
"""
