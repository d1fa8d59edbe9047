"""Columns whose pages are of every kind: each physical type, in each registered encoding, with NULLs and without.

A column has a plan, which says for each page how it is encoded, and is written with a small ``block_rows``; writers
follow it by ``planned``, whatever suits the cells. So pages of unlike kinds are neighbours, as they are when a
dictionary becomes too large or when a compaction copies pages. For strings, of which all pages of a morsel are read in
one way, there are columns of one kind, of two and of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations, cycle
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from nyala.engine.cfile.cutter import PageCutter
from nyala.engine.cfile.encoder import DictionaryEncoder, StreamEncoder
from nyala.engine.cfile.page import EncodedPage, encode_page
from nyala.engine.cfile.writer import StreamWriter
from nyala.engine.codecs import registry
from nyala.engine.codecs.codec import Codec
from nyala.engine.codecs.dictionary import DictionaryCodec
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import Vector, as_bytes
from tests.campaigns.matrix import cells as alike

TYPES: dict[PhysicalType, pa.DataType] = {
    PhysicalType.BOOL: pa.bool_(),
    PhysicalType.INT8: pa.int8(),
    PhysicalType.INT16: pa.int16(),
    PhysicalType.INT32: pa.int32(),
    PhysicalType.INT64: pa.int64(),
    PhysicalType.INT128: pa.decimal128(38, 2),
    PhysicalType.FLOAT32: pa.float32(),
    PhysicalType.FLOAT64: pa.float64(),
    PhysicalType.BYTES: pa.string(),
}
"""A logical type for each physical one."""
ALL_NULL = "all NULL"
"""Stands for an encoding in a plan: nothing of the page is encoded."""
LONG = 300
"""Bytes of strings that are too long for a kernel to copy out of a dictionary."""
UNEVEN_ROWS = (1_000, 24, 3, 700, 90, 60, 5, 1_024, 1)
"""Of the pages of a column that is not even, one after the other."""


@dataclass(frozen=True)
class PageColumn:
    """A column. Page n is encoded by ``plan[n]``, and begins anew when the plan ends."""

    name: str
    physical: PhysicalType
    plan: tuple[str, ...]
    style: int
    nullable: bool = True
    long: bool = False

    @property
    def field(self) -> pa.Field:
        return pa.field(self.name, TYPES[self.physical], self.nullable)

    def cells(self, pages: np.ndarray, numbers: np.ndarray) -> pa.Array:
        """Return cells without NULL: those of one page are alike, and different for different numbers."""
        styles = (pages + self.style) % len(alike.STYLES)
        arrays = [self._like(name, numbers[styles == style]) for style, name in enumerate(alike.STYLES)]
        places = np.empty(len(numbers), np.int64)
        places[np.argsort(styles, kind="stable")] = np.arange(len(numbers))
        return pa.concat_arrays(arrays).take(pa.array(places))

    def _like(self, style: str, numbers: np.ndarray) -> pa.Array:
        return alike.cells(self.field.type, style, numbers, "x" * LONG if self.long else None)

    def first_cells(self, pages: np.ndarray, numbers: np.ndarray) -> pa.Array:
        """Return the cells that rows are inserted with: NULL in all rows of some pages, as the plan says, and in some
        rows of every other one of the rest."""
        is_null = np.isin(pages % len(self.plan), [n for n, how in enumerate(self.plan) if how == ALL_NULL])
        is_null |= ((pages + self.style) % 2 == 0) & (numbers % 7 == 3)
        return self._with_nulls(self.cells(pages, numbers), is_null)

    def other_cells(self, pages: np.ndarray, numbers: np.ndarray, turn: int) -> pa.Array:
        """Return cells that rows get later: a third of them NULL, a third as other rows of the page have them, and a
        third unlike any before."""
        kinds = (numbers + numbers // 3 + turn + self.style) % 3
        source = np.where(kinds == 1, numbers ^ 64, numbers + 1_000_000 * (turn + 1))
        return self._with_nulls(self.cells(pages + turn, source), kinds == 0)

    def new_cells(self, pages: np.ndarray, numbers: np.ndarray, turn: int) -> pa.Array:
        """Return cells that rows get later, none of them NULL."""
        return self.cells(pages + turn, numbers + 1_000_000 * (turn + 1))

    def nulls(self, pages: np.ndarray, numbers: np.ndarray, turn: int) -> pa.Array:
        """Return NULLs."""
        del pages, turn
        return pa.nulls(len(numbers), self.field.type)

    def _with_nulls(self, cells: pa.Array, is_null: np.ndarray) -> pa.Array:
        return pc.if_else(pa.array(is_null), pa.scalar(None, cells.type), cells) if self.nullable else cells


def encodings_of(physical: PhysicalType) -> tuple[str, ...]:
    """Return the names of all registered codecs that store cells of a type; not the one of nested cells."""
    return tuple(each.name for each in registry._CODECS if each.supports(physical) and each.name != "shredded")


def page_columns() -> list[PageColumn]:
    """Return the columns: they follow from the registry of codecs."""
    columns: list[PageColumn] = []
    for number, physical in enumerate(PhysicalType):
        encodings = encodings_of(physical)
        style = number if "run_length" not in encodings else -encodings.index("run_length")  # runs where they pay
        columns.append(PageColumn(f"{physical}_null", physical, (*encodings, ALL_NULL), style))
        columns.append(PageColumn(f"{physical}_full", physical, encodings, style, nullable=False))
    for encoding in dict.fromkeys(name for physical in PhysicalType for name in encodings_of(physical)):
        widest = [physical for physical in PhysicalType if encoding in encodings_of(physical)][-1]
        columns.append(PageColumn(f"{encoding}_of_every_style", widest, (encoding,), 3))
    columns.append(PageColumn("integers_of_every_style", PhysicalType.INT64, ("frame_of_reference",), 3))
    text = PhysicalType.BYTES
    kinds = (*encodings_of(text), ALL_NULL)
    pairs = [pair for pair in combinations(kinds, 2) if ALL_NULL in pair or "dictionary" in pair]
    for plan in (*combinations(kinds, 1), *pairs, kinds, kinds[::-1]):
        columns.append(PageColumn(f"text_{len(columns)}", text, plan, len(columns)))
    columns += [
        PageColumn("long_codes", text, ("dictionary", ALL_NULL), 1, long=True),
        PageColumn("long_mix", text, ("dictionary", "plain", ALL_NULL), 1, long=True),
    ]
    return columns


# --- writers that follow the plans ---


class PlannedEncoder(DictionaryEncoder):
    """Encodes page after page as a plan says."""

    def __init__(self, physical: PhysicalType, plan: tuple[str, ...], compression: int) -> None:
        super().__init__(physical, [], compression)
        self._plan = plan
        self._has_codes = False

    def encode(self, cells: Vector, is_full: bool) -> tuple[EncodedPage, Vector]:
        del is_full
        codec = self._codec()
        self._page_count += 1
        is_null = cells.valid is not None and not cells.valid.any()
        if isinstance(codec, DictionaryCodec) and not is_null:
            if coded := self._coded(cells, False):
                self._has_codes = True
                return self._page(codec, coded), coded
            codec = registry.codec_by_name("plain")  # the dictionary would be too large
        if self.physical is PhysicalType.BYTES:
            cells = as_bytes(cells)
        self._note(codec.name)
        return encode_page(cells, self.physical, codec, self._compression), cells

    def dictionary_page(self) -> EncodedPage | None:
        return super().dictionary_page() if self._has_codes else None

    def copies(self, encoding: str, dictionary: Any) -> bool:
        """Copy no page: what is written anew has the kinds of the plan again."""
        del encoding, dictionary
        return False

    def restart(self) -> None:
        self.encodings = []
        self._page_count = 0

    def _codec(self) -> Codec:
        """Return the codec of the next page; a page of NULLs has any, of which nothing is used."""
        name = self._plan[self._page_count % len(self._plan)]
        return registry.codec_by_name(encodings_of(self.physical)[0] if name == ALL_NULL else name)


class UnevenCutter(PageCutter):
    """Cuts pages of unlike numbers of rows, as those of a column become that has some very long cells."""

    def __init__(self) -> None:
        self._rows_of_pages = cycle(UNEVEN_ROWS)
        super().__init__(next(self._rows_of_pages))

    def _page(self) -> Vector:
        self._page_rows = next(self._rows_of_pages)
        return super()._page()


@contextmanager
def planned(columns: dict[int, PageColumn], uneven: bool = False) -> Iterator[None]:
    """Let all files be written by the plans of columns, which are by their ids, base cells and deltas alike.

    Deltas take the encodings one after the other, too. With ``uneven`` the pages of base cells have other numbers of
    rows than most have.
    """
    begun: dict[tuple[int, str], int] = {}

    def new_encoder(writer: StreamWriter) -> StreamEncoder:
        column = columns.get(writer._key.column_id)
        if column is None or writer._key.role not in ("base", "value"):
            return usual(writer)
        if uneven and writer._key.role == "base":
            writer._cutter = UnevenCutter()
        at = begun[writer._key] = begun.get(writer._key, -1) + 1
        plan = column.plan
        if writer._key.role == "value":
            every = encodings_of(column.physical)
            if "dictionary" in every:  # half of them: patches come as codes then
                every = tuple(name for encoding in every for name in ("dictionary", encoding))
            turn = (at + writer._key.column_id) % len(every)
            plan = every[turn:] + every[:turn]
        return PlannedEncoder(writer._physical, plan, writer._compression)

    usual = StreamWriter._new_encoder
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StreamWriter, "_new_encoder", new_encoder)
        yield
