"""How a store's memory is shared: the page cache has all of the budget that nothing else uses at the moment.

Unflushed rows, key indexes and reads have limits of their own, and need less most of the time. Pages fill the rest, and
go first when others need more: a page that was dropped costs one read.
"""

from __future__ import annotations

from collections.abc import Callable

from ..manifest.environment import Environment
from ..options import StoreOptions
from ..vectors.memory.reused import idle_bytes, keep
from .memory_gate import MemoryGate

_SPARE_SHARE = 16
"""The part of the budget that stays free, as a divisor: for running flushes and compactions."""


def share_memory(options: StoreOptions, environment: Environment, gate: MemoryGate, reads: Callable[[], int]) -> None:
    """Share a store's budget of memory: let the page cache have what unfinished work leaves of it, unless it has an
    option of its own; and say how much memory is kept for its next use. ``reads`` returns what reads use."""
    keep(results=options.scan_buffer_bytes, columns=options.flush_bytes, tables=options.key_index_bytes // 8)
    pages, index = environment.page_cache, environment.key_index
    most = options.budget_bytes - options.budget_bytes // _SPARE_SHARE

    def room() -> int:
        used = gate.held_bytes + index.used_bytes + reads() + idle_bytes()
        return max(most - used, options.pages_min)

    if options.page_cache_bytes is None:
        pages.take_room(room)
        gate.measured = pages.fit
