"""ServerMetrics: what a server has counted of its requests.

A request pays for two looks at the clock and a few additions; all else is done when somebody asks for the numbers.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...schemas.protocol.service import StoreService
from ...schemas.store.metrics import Histogram, MetricFamily, Metrics, counter, each_of, gauge, histogram, merged, one
from .process_metrics import process_families
from .source_metrics import source_families

if TYPE_CHECKING:
    from ..admission.admission import Admission
    from ..security.authentication import Authentication


class ServerMetrics:
    """The metrics that one server counts of its requests. For any number of threads: see ``Histogram``."""

    def __init__(self) -> None:
        self._requests: dict[str, Histogram] = {}
        self._errors: Counter[tuple[str, str]] = Counter()
        self._errors_lock = threading.Lock()
        self.ended: dict[str, int] = {"stalled": 0, "displaced": 0, "too_old": 0}
        """The streams that the server ended, by the reason."""
        self.received_bytes = self.sent_bytes = self.written_rows = 0
        self.counting: set[Callable[[], None]] = set()
        """Each counts here what running calls have done since the last time."""
        self.more: Callable[[], list[MetricFamily]] = list
        """Numbers of the process that serves."""

    def of(self, verb: str) -> Histogram:
        """Return the durations of the requests of a verb."""
        return self._requests.get(verb) or self._requests.setdefault(verb, Histogram())

    def requests(self) -> list[tuple[str, list[int], float]]:
        """Return how many requests of each verb took how long, and their seconds: see ``Histogram``."""
        return [(verb, each.counts.copy(), each.total) for verb, each in list(self._requests.items())]

    def failed(self, verb: str, code: str) -> None:
        """Count an error that a client got."""
        with self._errors_lock:  # hashing the key is a call: see Histogram
            self._errors[verb, code] += 1

    def received(self, size: int) -> None:
        """Count bytes from clients."""
        self.received_bytes += size

    def sent(self, size: int) -> None:
        """Count bytes for clients."""
        self.sent_bytes += size

    def wrote(self, rows: int) -> None:
        """Count rows that were applied."""
        self.written_rows += rows

    def now(self, store: StoreService, admission: Admission, authentication: Authentication | None) -> Metrics:
        """Return these numbers and those of the store."""
        for count in self.counting.copy():
            count()
        with self._errors_lock:
            errors = [one(count, verb=verb, code=code) for (verb, code), count in self._errors.items()]
        running, waiting = admission.counts()
        families: list[MetricFamily] = [
            histogram("nyala_request_seconds", "Requests, from their arrival to the end.", "verb", self._requests),
            counter("nyala_request_errors", "Errors that clients got.", *errors),
            gauge("nyala_running_requests", "Requests that run, by their kind.", *each_of("kind", running)),
            gauge("nyala_waiting_requests", "Requests that wait to be admitted.", *each_of("kind", waiting)),
            gauge("nyala_request_limit", "Requests that may run at once.", *each_of("kind", admission.limits())),
            counter("nyala_ended_streams", "Streams that the server ended.", *each_of("reason", self.ended)),
            counter("nyala_received_bytes", "Rows and keys from clients, decompressed.", one(self.received_bytes)),
            counter("nyala_sent_bytes", "Rows for clients, before compression.", one(self.sent_bytes)),
            counter(
                "nyala_written_rows",
                "Rows that writes, statements, transactions and imports applied.",
                one(self.written_rows),
            ),
            counter(
                "nyala_authentication_failures",
                "Calls without a token that is valid.",
                *each_of("reason", authentication.failures if authentication else {}),
            ),
        ]
        return merged(store.metrics(), [*families, *source_families(store), *self.more(), *process_families()])
