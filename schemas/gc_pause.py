"""Python's garbage collector, which need not run while modules are imported."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Collect no garbage in the body, which imports modules: they leave none, and to look for it takes a tenth of a
    start. Not for bodies that serve anybody: what they drop would stay."""
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()
