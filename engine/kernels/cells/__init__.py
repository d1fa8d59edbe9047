"""Kernels over cells of columns: gathering, delta application, sums, whole rows.

Not inside: encodings of pages (`kernels/pages`). Vectors, deltas, aggregates and codecs call them.
"""
