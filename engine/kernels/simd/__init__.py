"""Vector instructions for kernels: LLVM's where the processor has them, the same in plain loops elsewhere.

Beside them cells of any width. Not inside: kernels with a purpose of their own. All rooms of kernels above use it, and
so do codecs.
"""
