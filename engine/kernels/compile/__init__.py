"""Making kernels ready before they are needed: a library for a processor, its linker, warm-up and self-test.

Not inside: the use of a finished library (`kernels/ahead`). `nyala warmup`, `make wheel` and the first start use it.
"""
