"""Column vectors: arrays of cells with their validity, to and from Arrow, and the texts in them that are JSON.

`memory` lends the bytes they lie in; `keys` encodes primary keys and orders them. Not inside: compiled loops
(`kernels`) and encodings on disk (`codecs`). Every room of the engine above may use this one.
"""
