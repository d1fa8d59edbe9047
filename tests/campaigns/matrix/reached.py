"""What there is to read, as the engine says it, and what readers came to of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import wraps
from itertools import product
from typing import Any, NamedTuple, get_args
from weakref import WeakKeyDictionary

import pytest

from nyala.engine.cfile import page_kind
from nyala.engine.codecs.codec import block_count
from nyala.engine.delta.memstore import DeltaLog
from nyala.engine.delta.pages import DeltaPages
from nyala.engine.delta.patch import Patch
from nyala.engine.delta.tracker import DeltaStores
from nyala.engine.kernels.pages import frames
from nyala.engine.kernels.reads import morsel, point_read
from nyala.engine.rowset.diskrowset import DiskRowSet
from nyala.engine.rowset.memrowset import MemRowSet
from nyala.engine.rowset.native.morsel_column import MorselColumn
from nyala.engine.rowset.rowset import RowSet
from nyala.engine.scan.plan.choose import Ways
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import Vector
from nyala.schemas.rows.scan import ScanSpec
from tests.campaigns.matrix.pages import encodings_of

Sources = WeakKeyDictionary[Patch, str]
"""The field of DeltaStores that a patch comes from."""


class Case(NamedTuple):
    """Rows of a page under a patch."""

    kind: str
    physical: PhysicalType
    store: str
    cells: str
    """The vector of the patch's cells."""
    has_null: bool
    """Whether the patch makes cells NULL."""
    is_folded: bool
    """Whether they were read for a filter or an aggregate, not to be returned."""


@dataclass
class Reached:
    cases: set[Case] = field(default_factory=set)
    block_forms: set[int] = field(default_factory=set)
    """Those of blocks with frames, under patches."""
    column_forms: set[int] = field(default_factory=set)
    """What kernels made of columns with patches."""
    methods: set[str] = field(default_factory=set)
    """Of rowsets."""
    spec_fields: set[str] = field(default_factory=set)
    """Of scans, if they were not as by default."""


# --- what there is ---


def page_kinds(physical: PhysicalType) -> set[str]:
    """Return the names of the kinds that pages of a type have in some registered encoding."""
    names = {number: name for name, number in vars(point_read).items() if name in _PAGE_KINDS}
    found = {page_kind._KINDS[encoding] for encoding in encodings_of(physical)} - {point_read.FIXED, point_read.UNREAD}
    return {names[number] for number in (*found, page_kind._plain(physical), point_read.NULLS)}


_PAGE_KINDS = {"FIXED", "SHUFFLED", "RUNS", "CODES", "BITS", "STRINGS", "NULLS", "FRAMES", "PREFIXES", "SYMBOLS"}


def cases() -> set[Case]:
    """Return every kind of page under every kind of patch. Deltas in memory have no dictionary."""
    found = set[Case]()
    stores = {each.name for each in fields(DeltaStores)}
    for physical in PhysicalType:
        vectors = {each.__name__ for each in get_args(Vector)} - {"FixedVector"}
        vectors = vectors if physical is PhysicalType.BYTES else {"FixedVector"}
        for parts in product(page_kinds(physical), [physical], stores, vectors, (False, True), (False, True)):
            case = Case(*parts)
            if (case.store, case.cells) != ("memory", "DictionaryVector"):
                found.add(case)
    return found


def lacking(reached: Reached) -> set[tuple[Any, ...]]:
    """Return what there is and was not reached: kinds of pages under kinds of patches, of each type and in each form;
    with NULLs and without; returned and folded."""

    def views(found: set[Case]) -> set[tuple[Any, ...]]:
        of_types = {(case.kind, case.physical, case.store, case.cells) for case in found}
        of_nulls = {(case.kind, case.store, f"has_null={case.has_null}") for case in found}
        return of_types | of_nulls | {(case.kind, case.store, f"is_folded={case.is_folded}") for case in found}

    return views(cases()) - views(reached.cases)


def block_forms() -> set[int]:
    return {frames.LINE, frames.DECIMAL, frames.STEPS, frames.REAL, frames.DICTIONARY}


def column_forms() -> set[int]:
    return {number for name, number in vars(morsel).items() if name.startswith("AS_")}


def methods() -> set[str]:
    """Return the names of what a rowset can be asked for."""
    members = vars(RowSet).items()
    return {name for name, value in members if inspect.isfunction(value) and not name.startswith("_")}


# --- what was reached ---


@contextmanager
def recorded() -> Iterator[Reached]:
    """Record what is reached meanwhile."""
    reached, sources = Reached(), Sources()
    stores = ((DeltaPages, "redo", "redo"), (DeltaPages, "undo", "undo"), (DeltaLog, "patches", "memory"))
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, store in stores:
            patch.setattr(owner, name, _noting(getattr(owner, name), store, sources))
        patch.setattr(MorselColumn, "__init__", _planning(MorselColumn.__init__, reached, sources))
        for owner in (RowSet, MemRowSet, DiskRowSet):
            for name in methods() & set(vars(owner)):
                patch.setattr(owner, name, _calling(vars(owner)[name], name, reached))
        patch.setattr(Ways, "scan", _scanning(Ways.scan, reached))
        yield reached


def _noting(function: Callable[..., list[Patch]], store: str, sources: Sources) -> Callable[..., list[Patch]]:
    @wraps(function)
    def call(*args: Any, **words: Any) -> list[Patch]:
        found = function(*args, **words)
        sources.update(dict.fromkeys(found, store))
        return found

    return call


def _calling(function: Callable[..., Any], name: str, reached: Reached) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **words: Any) -> Any:
        reached.methods.add(name)
        return function(*args, **words)

    return call


def _scanning(function: Callable[..., Any], reached: Reached) -> Callable[..., Any]:
    @wraps(function)
    def call(self: Ways, spec: ScanSpec, *args: Any, **words: Any) -> Any:
        default = ScanSpec(table="")
        reached.spec_fields |= {name for name in ScanSpec.model_fields if getattr(spec, name) != getattr(default, name)}
        return function(self, spec, *args, **words)

    return call


def _planning(function: Callable[..., None], reached: Reached, sources: Sources) -> Callable[..., None]:
    @wraps(function)
    def call(self: MorselColumn, base: Any, first: int, last: int, *args: Any, in_windows: bool = False) -> None:
        _, stream, patches = base
        try:
            function(self, base, first, last, *args, in_windows=in_windows)
            if patches:
                reached.column_forms.add(self.form)
        finally:  # what the kernel cannot read is read as vectors
            if stream is not None and patches:
                _note_cases(stream, patches, first, last, in_windows, reached, sources)

    return call


def _note_cases(
    stream: Any, patches: list[Patch], first: int, last: int, in_windows: bool, reached: Reached, sources: Sources
) -> None:
    names = {number: name for name, number in vars(point_read).items() if name in _PAGE_KINDS}
    row = first
    for page, start, stop in stream.parts(first, last):
        kind, _ = page_kind.kind_of(page, stream.physical)
        for patch in patches:
            low, high = patch.rows.window(row, row + stop - start)
            if low < high:
                values = patch.cells.values
                has_null = values.valid is not None and not values.valid[patch.rows.places[low:high]].all()
                cells = type(values).__name__
                reached.cases.add(Case(names[kind], stream.physical, sources[patch], cells, has_null, in_windows))
                if kind == point_read.FRAMES:
                    every = page.stored[: frames.FRAME_BYTES * block_count(page.row_count)]
                    reached.block_forms.update(every[21 :: frames.FRAME_BYTES].tolist())
        row += stop - start
