"""Live charts: what a server did in the last minutes, from samples that it takes of its own numbers.

A sample is a few additions every two seconds, whether somebody looks or not; so a chart has a past when it is first
looked at. The server draws them: the script only asks for newer ones.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ....schemas.store.metrics import SECONDS, extremes, quantile
from ...server import FlightServer
from .graph import Line, Unit, graph
from .html import Element, tag
from .words import clock

SAMPLE_SECONDS = 2.0
_KEPT = 300
_WRITES = frozenset({"do_put", "session_write", "execute", "commit_transaction", "import_commit"})
_STREAMS = frozenset({"do_exchange"})
"""As long as a client wants."""


@dataclass(frozen=True, slots=True)
class Times:
    """How many requests took how long, from the start of a server, as a histogram for the console's charts."""

    counts: tuple[int, ...] = (0,) * (len(SECONDS) + 1)
    total: float = 0.0
    """Their seconds."""

    @classmethod
    def of(cls, parts: Sequence[tuple[Sequence[int], float]]) -> Times:
        """Return the sum of histograms."""
        if not parts:
            return cls()
        return cls(tuple(map(sum, zip(*(counts for counts, _ in parts), strict=True))), sum(each for _, each in parts))

    def slowest(self, before: Times) -> float:
        """Return what 95 % of the requests since ``before`` took at most; 0 if there were none."""
        counts = [new - old for old, new in zip(before.counts, self.counts, strict=True)]
        return quantile(counts, SECONDS, 0.95, *extremes(counts, SECONDS, self.total - before.total))


@dataclass(frozen=True, slots=True)
class Sample:
    """The numbers of a server at one moment, for the console's charts; but for the last two they count from its
    start."""

    moment: float
    """By the clock that never goes back, in seconds."""
    reads: Times
    """Requests other than writes."""
    writes: Times
    written_rows: int
    sent_bytes: int
    received_bytes: int
    processor_seconds: float
    running: int
    resident_bytes: int


class Samples:
    """The samples of the last ten minutes, for the console's charts. One thread adds, others read."""

    def __init__(self) -> None:
        self._kept: deque[Sample] = deque(maxlen=_KEPT)

    def take(self, server: FlightServer) -> None:
        """Add a sample of a server."""
        metrics = server.calls.metrics
        requests = metrics.requests()
        self._kept.append(
            Sample(
                moment=time.monotonic(),
                reads=Times.of([(counts, total) for verb, counts, total in requests if verb not in _WRITES | _STREAMS]),
                writes=Times.of([(counts, total) for verb, counts, total in requests if verb in _WRITES]),
                written_rows=metrics.written_rows,
                sent_bytes=metrics.sent_bytes,
                received_bytes=metrics.received_bytes,
                processor_seconds=time.process_time(),
                running=server.admission.running,
                resident_bytes=_resident(),
            )
        )

    def all(self) -> list[Sample]:
        """Return the samples, the oldest first."""
        return list(self._kept.copy())


def _resident() -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def charts(samples: Samples) -> Element:
    """Return the charts of a page of the console: what happened between samples."""
    found = samples.all()
    if len(found) < 3:
        return tag("p", "The charts begin a few seconds after the start of the server.")
    pairs = list(pairwise(found))

    def rates(of: Callable[[Sample], float]) -> list[float]:
        return [(of(after) - of(before)) / (after.moment - before.moment) for before, after in pairs]

    def slowest(of: Callable[[Sample], Times]) -> list[float]:
        return [of(after).slowest(of(before)) for before, after in pairs]

    until = time.time()
    since = until - (found[-1].moment - found[0].moment)

    def drawn(title: str, unit: Unit, *lines: Line) -> Element:
        return graph(title, unit, since, until, *lines)

    graphs = [
        drawn(
            "Requests a second",
            Unit.COUNT,
            Line("reads", rates(lambda each: sum(each.reads.counts))),
            Line("writes", rates(lambda each: sum(each.writes.counts))),
        ),
        drawn("Rows written a second", Unit.COUNT, Line("", rates(lambda each: each.written_rows))),
        drawn(
            "95 % take at most",
            Unit.SECONDS,
            Line("reads", slowest(lambda each: each.reads)),
            Line("writes", slowest(lambda each: each.writes)),
        ),
        drawn(
            "Bytes a second",
            Unit.BYTES,
            Line("sent", rates(lambda each: each.sent_bytes)),
            Line("received", rates(lambda each: each.received_bytes)),
        ),
        drawn("Processors in use", Unit.COUNT, Line("", rates(lambda each: each.processor_seconds))),
        drawn("Running requests", Unit.COUNT, Line("", [each.running for each in found[1:]])),
        drawn("Memory of the process", Unit.BYTES, Line("", [each.resident_bytes for each in found[1:]])),
    ]
    about = (
        f"The last {(until - since) / 60:.1f} minutes, to {clock(until)}. Requests at this address, of all "
        "users; requests that are not writes count as reads."
    )
    return tag("section", tag("p", about), tag("div", *graphs, class_="charts"), aria_label="Charts")
