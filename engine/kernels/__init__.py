"""All compiled loops: the only folder whose functions numba compiles.

The rooms, from the top: `compile`, `reads` and `log`, `keys`, `cells`, `pages`, `simd`, `ahead`; each may use the rooms
after it. Kernels take arrays or addresses, hold no lock, raise nothing and check nothing: their callers have. Not
inside: what a loop is for, which the rooms of the engine above know.
"""
