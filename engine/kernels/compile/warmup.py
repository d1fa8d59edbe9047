"""Make every kernel ready ahead of its first use.

From a library that is nothing but a test. Without one all kernels are compiled: cold, this takes tens of seconds, and
compiling holds the GIL; from the cache it takes a second or two. So: run it when an image is built or a server starts,
not under the first query.
"""

from collections.abc import Callable

from ..ahead.form import FORM, Form
from ..ahead.kernel import KERNELS
from ..ahead.library import library
from .inventory import import_all, kernels_for_python
from .self_test import self_test

Progress = Callable[[int, int, str], None]
"""Called with kernels done, kernels in all, and the name of the next one."""


def warm_up(progress: Progress | None = None) -> int:
    """Make all kernels ready, by their library or by compiling them, and try them out; return how many.

    If machine code from the cache gives wrong results, the cache is emptied and everything compiled anew. Raises
    RuntimeError if it is wrong even then, or comes from a library.
    """
    if FORM is Form.INTERPRETED:
        return 0
    if found := library():
        if not self_test():
            raise RuntimeError(
                "the precompiled kernels give wrong results on this machine; set NYALA_KERNELS=jit to compile them "
                "at their first use"
            )
        return len(found.kernels)
    return _compile_all(progress)


def _compile_all(progress: Progress | None) -> int:
    from ..ahead import cache

    import_all()
    entries = kernels_for_python()
    for done, (kernel, signature) in enumerate(entries):
        if progress:
            progress(done, len(entries), kernel.__name__)
        kernel.compile(signature)
    if progress:
        progress(len(entries), len(entries), "")
    if not self_test():
        cache.wipe()
        for kernel in KERNELS:
            kernel.recompile()
        if not self_test():
            raise RuntimeError("freshly compiled kernels give wrong results")
    return len(entries)
