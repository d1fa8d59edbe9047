"""Measurements: codecs and kernels (micro), the embedded store (engine), and beside another store (compare)."""
