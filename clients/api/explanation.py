"""The plan of a scan, or the account of one that ran: as a page for people, and as plain data."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from ...schemas.rows.scan import ScanSpec

_UNITS = ("B", "KB", "MB", "GB", "TB")


class Explanation(dict[str, Any]):
    """The answer to a user's ``Scan.explain``: what the scan reads, what it skips, and why. It is a dict whose text is
    a readable page.

    ``print(scan.explain())`` shows the page, ``scan.explain().json()`` returns the JSON, and each part is a key of the
    dict.
    """

    def __init__(self, spec: ScanSpec, parts: dict[str, Any]) -> None:
        super().__init__(parts)
        self._spec = spec

    def json(self) -> str:
        """Return all parts as JSON."""
        return json.dumps(self)

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    __str__ = __repr__

    def _lines(self) -> Iterator[str]:
        spec, known = self._spec, self.get
        what = "changes" if spec.changes else "scan"
        yield f"{what} of table {spec.table!r} at {_moment(self['snapshot'])}"
        if spec.changes:
            yield _line("since", _moment(known("since", 0)))
        yield _line("columns", ", ".join(known("columns_read", [])) or "none")
        if spec.where is not None:
            yield _line("where", spec.where if isinstance(spec.where, str) else json.dumps(spec.where))
            yield from self._filter()
        yield from self._order()
        yield from self._pruned()
        splits = known("splits", [])
        size = _bytes(sum(each["bytes"] for each in splits))
        yield _line("to read", f"at most {known('rows_to_read', 0):,} of {known('rows', 0):,} rows, {size}")
        yield _line("parts", f"{len(splits)}, which can be read in parallel")
        if ran := known("analyze"):
            yield _line("read", f"{ran['rows']:,} rows, {_bytes(ran['bytes'])} of Arrow in {ran['batches']:,} batches")
            first = (
                ""
                if ran["first_batch_seconds"] is None
                else f", the first batch after {ran['first_batch_seconds']:.3f} s"
            )
            yield _line("took", f"{ran['seconds']:.3f} s{first}")

    def _filter(self) -> Iterator[str]:
        """Say which parts of the filter skip pages and keys, and which are evaluated on the rows that are left."""
        if evaluated := self.get("filter_evaluated"):
            yield _line("pushed", " AND ".join(self.get("filter_pushed", ())) or "nothing")
            yield _line("evaluated", " AND ".join(evaluated))

    def _order(self) -> Iterator[str]:
        spec = self._spec
        if spec.ordered:
            yield _line("order", "primary key")
        if spec.order_by:
            terms = (
                f"{term.column}{' DESC' if term.descending else ''} NULLS {term.nulls.upper()}"
                for term in spec.order_by
            )
            yield _line("order", ", ".join(terms))
        if spec.limit is not None or spec.offset:
            yield _line(
                "limit", f"{'all' if spec.limit is None else f'{spec.limit:,}'} rows, from row {spec.offset:,} on"
            )

    def _pruned(self) -> Iterator[str]:
        """Say what is left out at each step, and why."""
        known = self.get
        tablets = f"{known('tablets_to_read', 0):,} of {known('tablets', 0):,} read"
        levels = [
            f"{level['tablets_left']:,} of {level['tablets']:,} by {level['level']} ({level['why']})"
            for level in known("partition_levels", [])
        ]
        yield _line("tablets", f"{tablets}{'; ' + ', '.join(levels) if levels else ''}")
        total, by_key = known("rowsets", 0), known("rowsets_pruned_by_key_range", 0)
        reasons = {
            "have no key in the range": by_key,
            "are looked up by key": known("rowsets_looked_up_by_key", 0),
            "have no commit in the time range": known("rowsets_unchanged", 0),
        }
        yield _line("rowsets", _of(total, reasons))
        reasons = {
            "skipped by the minimum and maximum of their pages": known("chunks_pruned_by_zone_map", 0),
            "read only where rows were updated": known("chunks_read_where_updated", 0),
        }
        yield _line("pieces", _of(known("chunks", 0), reasons))


def analyzed(batches: Iterable[pa.RecordBatch]) -> dict[str, Any]:
    """Read a user's scan to its end, to explain how it ran; return its rows, bytes, batches, and seconds on this
    side."""
    start = time.perf_counter()
    rows = size = count = 0
    first: float | None = None
    for batch in batches:
        first = time.perf_counter() - start if first is None else first
        rows, size, count = rows + batch.num_rows, size + batch.nbytes, count + 1
    seconds = time.perf_counter() - start
    return {"rows": rows, "bytes": size, "batches": count, "seconds": seconds, "first_batch_seconds": first}


def _line(name: str, text: str) -> str:
    return f"  {name + ' ':<9}{text}"


def _of(total: int, reasons: dict[str, int]) -> str:
    said = [f"{count:,} {why}" for why, count in reasons.items() if count]
    return "; ".join([f"{total:,} in all", *said])


def _moment(timestamp: int) -> str:
    try:
        at = dt.datetime.fromtimestamp((timestamp >> 12) / 1_000_000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp)
    return f"{timestamp} ({at:%Y-%m-%d %H:%M:%S.%f} UTC)"


def _bytes(size: float) -> str:
    for unit in _UNITS[:-1]:
        if size < 1_000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1_000
    return f"{size:.1f} {_UNITS[-1]}"
