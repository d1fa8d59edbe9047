"""The operating system's figures for this process, under the names that Prometheus has for them."""

from __future__ import annotations

import functools
import os
import time
from contextlib import suppress
from pathlib import Path

from ...schemas.store.metrics import MetricFamily, counter, gauge, one

_SELF = Path("/proc/self")
_STARTED = 21
"""The place of the start in ``/proc/self/stat`` (proc(5)), in ticks since the machine started, from 0."""


def process_families() -> list[MetricFamily]:
    """Return the metrics of the process that serves the requests: processor time, memory, files and its start, as far
    as ``/proc`` has them."""
    found = [counter("process_cpu_seconds", "Processor time, user and system.", one(time.process_time()))]
    with suppress(OSError, ValueError, IndexError):
        pages = int((_SELF / "statm").read_text().split()[1])
        resident = one(pages * os.sysconf("SC_PAGE_SIZE"))
        found.append(gauge("process_resident_memory_bytes", "Memory of the process.", resident))
        found.append(gauge("process_open_fds", "Open file descriptors.", one(len(os.listdir(_SELF / "fd")))))
        found.append(gauge("process_start_time_seconds", "When it started, in seconds since 1970.", one(_start())))
    return found


@functools.cache
def _start() -> float:
    """Return the same moment each time: the two clocks that it is computed from do not go alike."""
    after_name = (_SELF / "stat").read_text().rpartition(") ")[2].split()
    ticks = int(after_name[_STARTED - 2])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")
