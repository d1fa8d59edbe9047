"""Columns in a file: pages with zone maps, a footer, their cache and their verification.

Not inside: encodings (`codecs`), and the rowset that a file belongs to (`rowset`). Every room above that reads or
writes files of columns uses it.
"""
