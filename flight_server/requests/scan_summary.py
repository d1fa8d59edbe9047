"""Scanned: what a scan asks for, in words without values, and what it has read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...schemas.errors import StoreError
from ...schemas.rows.prune_count import PruneCount
from ...schemas.rows.scan import ScanSpec
from ..security.needs import tested

_TEXT_MAX = 4096


@dataclass(slots=True)
class Scanned:
    """The part of a request's record that says what a scan asked for and has read. It holds no value of a filter: it
    stays in memory, and others see it."""

    shape: str
    """What is asked for. It names columns only of a scan that is ``planned``: before, anything may be in the place of a
    name, such as a value in the wrong quotes."""
    filtered: tuple[str, ...] = ()
    """The columns of the filter, once they are known."""
    is_ordered: bool = False
    """In the order of the key."""
    is_aggregate: bool = False
    planned_seconds: float = 0.0
    """From the ticket to the first row that can be read."""
    counts: PruneCount | None = None
    """None: other processes count, or nothing did."""

    def planned(self, spec: ScanSpec, size: int, seconds: float, counts: PruneCount | None) -> None:
        """Note that the columns of a scan with a text of ``size`` bytes are known, after so many seconds."""
        self.planned_seconds, self.counts = seconds, counts
        if size > _TEXT_MAX:
            return
        try:
            self.filtered = tuple(sorted(tested(spec.where)))
        except StoreError:
            self.shape += "; a filter that is not valid here"
            return
        order = [term.column for term in spec.order_by or ()]
        self.shape = _shape(spec, _names("filter on", self.filtered), _names("order by", order), spec.group_by or ())


def asked(spec: ScanSpec, size: int) -> Scanned:
    """Return what a request's record keeps of a scan with a text of ``size`` bytes."""
    if size > _TEXT_MAX:
        shape = "a scan with a long text"
    else:
        has = {"a filter": spec.where is not None, "another order": bool(spec.order_by)}
        shape = _shape(spec, *("; " + about if is_so else "" for about, is_so in has.items()))
    return Scanned(shape, is_ordered=spec.ordered, is_aggregate=spec.aggregate is not None)


def _shape(spec: ScanSpec, filtered: str, sorting: str, groups: Iterable[str] = ()) -> str:
    if spec.aggregate is not None:
        plural = "" if len(spec.aggregate) == 1 else "s"
        shape = f"{len(spec.aggregate)} aggregate{plural}" + (f" by {', '.join(groups)}" if groups else "")
    else:
        shape = "all columns" if spec.columns is None else f"{len(spec.columns)} columns"
    return shape + filtered + sorting + "".join(f"; {text}" for text, is_so in _options(spec) if is_so)


def _names(before: str, names: Iterable[str]) -> str:
    listed = ", ".join(names)
    return f"; {before} {listed}" if listed else ""


def _options(spec: ScanSpec) -> tuple[tuple[str, bool], ...]:
    return (
        ("in the order of the key", spec.ordered),
        (f"limit {spec.limit}", spec.limit is not None),
        (f"offset {spec.offset}", bool(spec.offset)),
        ("changes", spec.changes is not None),
        ("as of a moment", spec.as_of is not None),
        ("one part of a plan", spec.tablet is not None or spec.partition is not None),
    )
