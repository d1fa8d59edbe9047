"""Kernels that encode and decode pages: bitshuffle, run lengths, dictionaries, prefixes, frames, checksums.

Not inside: the format of a page and the choice of an encoding (`codecs`, `cfile`). Codecs and the rooms of kernels
above call them.
"""
