"""The share that each of several processes has of a server's memory and threads."""

from __future__ import annotations

from typing import Any

from ...engine.options import BUDGET_MIN, BUDGET_SHARES


def memory_shares(options: Any, count: int) -> dict[str, int]:
    """Return the memory options of each of ``count`` processes, which share those of a store."""
    names = [name for name in (*BUDGET_SHARES, "page_cache_bytes") if getattr(options, name) is not None]
    parts = {name: max(getattr(options, name) // count, 1) for name in names}
    return parts | {"budget_bytes": max(options.budget_bytes // count, BUDGET_MIN)}


def shares(options: Any, count: int) -> dict[str, int]:
    """Return the options of memory and threads of each of ``count`` processes, which share those of a store."""
    threads = {name: max(getattr(options, name) // count, 1) for name in ("scan_threads", "load_threads")}
    return memory_shares(options, count) | threads
