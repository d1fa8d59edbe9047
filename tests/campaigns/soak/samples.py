"""What a soak measures: of the server's process from outside, of its directory, and by its clients."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from tests.campaigns.soak.verdict import Limit, Trend, trend

_MIB = 1 << 20
_LIMITS = {
    "anonymous_mib": ("MiB", Limit(24, 0.05)),
    "mapped_mib": ("MiB", Limit(16, 0.10)),
    "files": ("open files", Limit(16, 0.10)),
    "threads": ("threads", Limit(8, 0.10)),
    "disk_mib": ("MiB", Limit(32, 0.20)),
    "log_mib": ("MiB", Limit(16, 0.20)),
}
"""How much each of a server may grow in the second half of a soak. Memory and files may waver by what some requests
more or less take; a leak of a hundred bytes or a file a second passes them in an hour."""
_WARMING_SECONDS = 300.0
_WARMING = {"anonymous_mib": ("MiB", Limit(96, 0.05))}
"""A soak that is shorter than this sees caches, buffers and heaps fill: some hundred MiB, half of them in its second
half. Whether the memory is flat afterwards, only a longer one can tell."""
_LATENCY_LIMIT = Limit(0.002, 0.25)
WINDOWS = 60
"""So many windows the clients' latencies are cut into."""
_WINDOWS_JUDGED = 40
_WINDOW_SECONDS, _REQUESTS_A_WINDOW = 10.0, 30
"""p99 is judged where so many windows are at least so long, and have so many requests: fewer say nothing of it."""


@dataclass(frozen=True)
class Sample:
    """The server at one moment."""

    at: float
    """On the monotonic clock."""
    anonymous_mib: float
    """Its own memory: heaps, stacks, caches."""
    mapped_mib: float
    """Files mapped into it: code and libraries."""
    files: float
    """Open descriptors, connections among them."""
    threads: float
    disk_mib: float
    """All of the data directory, as the disk counts it."""
    log_mib: float
    """The write-ahead log in it."""
    processor_seconds: float
    """Since the server's start."""
    load: float
    """The load average of the machine over a minute: what else runs there slows answers, too."""


def sample(pid: int, directory: Path) -> Sample:
    """Measure a process that works on a data directory."""
    process = Path(f"/proc/{pid}")
    memory = dict(_figures((process / "smaps_rollup").read_text()))
    disk, log = _disk_bytes(directory)
    spent = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
    return Sample(
        at=time.monotonic(),
        anonymous_mib=memory["Anonymous"] / 1024,
        mapped_mib=(memory["Rss"] - memory["Anonymous"]) / 1024,
        files=len(os.listdir(process / "fd")),
        threads=len(os.listdir(process / "task")),
        disk_mib=disk / _MIB,
        log_mib=log / _MIB,
        processor_seconds=sum(map(int, spent)) / os.sysconf("SC_CLK_TCK"),
        load=os.getloadavg()[0],
    )


def _figures(text: str) -> Iterator[tuple[str, int]]:
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if value.endswith(" kB"):
            yield name, int(value.split()[0])


def _disk_bytes(directory: Path) -> tuple[int, int]:
    """Return the bytes that a data directory takes on the disk, and those of its log."""
    disk = log = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                size = os.stat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:  # it was dropped meanwhile
                continue
            disk += size
            log += size if os.path.basename(folder) == "wal" else 0
    return disk, log


@dataclass(frozen=True)
class Window:
    """The latencies of one verb in one part of a soak."""

    at: float
    """Its middle, in seconds from the beginning."""
    count: int
    p50: float
    p99: float


def windows(began: float, ended: float, latencies: Iterable[tuple[str, float, float]]) -> dict[str, list[Window]]:
    """Return the windows of each verb that have requests; ``latencies`` are (verb, moment, seconds)."""
    length = (ended - began) / WINDOWS
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for verb, at, seconds in latencies:
        found[verb][min(max(int((at - began) / length), 0), WINDOWS - 1)].append(seconds)
    return {
        verb: [
            Window((number + 0.5) * length, len(some), *np.quantile(some, (0.5, 0.99)).tolist())
            for number, some in sorted(parts.items())
        ]
        for verb, parts in sorted(found.items())
    }


def trends(samples: list[Sample], latencies: dict[str, list[Window]]) -> list[Trend]:
    """Return the trend of everything that must be flat."""
    at = [each.at for each in samples]
    limits = _LIMITS | (_WARMING if at[-1] - at[0] < _WARMING_SECONDS else {})
    found = [
        trend(each.name, limits[each.name][0], at, [getattr(one, each.name) for one in samples], limits[each.name][1])
        for each in fields(Sample)
        if each.name in limits
    ]
    for verb, parts in latencies.items():
        full = [each for each in parts if each.count >= _REQUESTS_A_WINDOW]
        if len(full) >= _WINDOWS_JUDGED and full[1].at - full[0].at >= _WINDOW_SECONDS:
            moments, p99 = [each.at for each in full], [each.p99 for each in full]
            found.append(trend(f"p99 of {verb}", "s", moments, p99, _LATENCY_LIMIT))
    return found
