"""The way to a compiled kernel: decorator, families, the form of this process, the library, numba's cache.

Not inside: making a library (`kernels/compile`). Every module with kernels uses the decorator.
"""
