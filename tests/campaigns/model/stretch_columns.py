"""The columns of a table of stretches, the cells of all of its keys, and filters on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nyala.schemas.cells.types import LogicalType
from tests.campaigns.matrix.cells import STYLES, cells
from tests.campaigns.options import storages

from .predicates import literal

ROWS = 5_200
"""Keys that there are: the rows of five pages, and some more."""
PAGE = 1_024
KINDS = (
    *["string"] * 6,
    "varchar(9)",
    "binary",
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "date",
    "timestamp[us]",
    "float",
    "double",
    "decimal(9,2)",
    "decimal(18,6)",
    "decimal(38,10)",
)
_STYLES = (*STYLES, "runs", "few", "few")
"""Few distinct cells more often: for others there is no dictionary."""
_LONG = "x" * 300
"""Strings that begin so are not copied out of a dictionary by a kernel, and soon outgrow it."""


@dataclass(frozen=True)
class Column:
    """A column beside the key."""

    name: str
    kind: str
    nullable: bool

    @property
    def logical(self) -> LogicalType:
        return LogicalType.parse(self.kind)

    @property
    def type(self) -> pa.DataType:
        return self.logical.arrow

    def kept(self, array: pa.Array) -> pa.Array:
        """Return cells as the table keeps them: strings are cut."""
        return pc.utf8_slice_codeunits(array, 0, self.logical.length) if self.logical.length else array

    def storage(self, random: Random) -> dict[str, Any]:
        """Return a way to store it."""
        choices = storages(self.logical)
        encodings = choices["encodings"]
        return {
            "encoding": random.choice([*encodings, *encodings[:2]]),
            "compression": random.choice([*choices["compressions"], "none", "none"]),
            "block_rows": random.choice([1024, 1024, 1024, 2048, None]),
        }

    def stretch(self, random: Random, keys: np.ndarray, known: pa.Array) -> pa.Array:
        """Return cells for some keys, all in one style, some of which or all may be NULL; perhaps of those that are
        ``known`` of all keys."""
        chance, style = random.random(), random.choice(_STYLES)
        if self.nullable and chance < 0.3:
            return pa.nulls(len(keys), self.type)
        if chance < 0.4 and known.null_count < len(known):
            found = known.drop_null().take(pa.array(keys % (len(known) - known.null_count)))
        else:
            stem = random.choice(["", None, None, None, None, None, None, _LONG])
            found = self.kept(cells(self.type, style, keys + random.randrange(1 << 20), stem))
        if not self.nullable or random.random() < 0.5:
            return found
        is_null = np.random.default_rng(random.randrange(1 << 30)).random(len(keys)) < random.choice([0.01, 0.3])
        return pc.if_else(pa.array(is_null), pa.scalar(None, self.type), found)


def random_column(random: Random, name: str) -> Column:
    return Column(name, random.choice(KINDS), random.random() < 0.8)


@dataclass(frozen=True)
class State:
    """The table at one moment: which keys have a row, and the cells of all keys, which mean nothing without one."""

    alive: np.ndarray
    cells: dict[str, pa.Array] = field(default_factory=dict)

    def with_cells(self, name: str, keys: np.ndarray, new: pa.Array) -> State:
        """Return the state with other cells for some keys."""
        old = self.cells[name]
        places = np.arange(ROWS)
        places[keys] = ROWS + np.arange(len(keys))
        both = pa.concat_arrays([old, new.cast(old.type)]).take(pa.array(places))
        return State(self.alive, self.cells | {name: both})


def random_keys(random: Random) -> np.ndarray:
    """Return some keys, ascending: whole pages, a range, some of a range, or any."""
    first, length = random.randrange(ROWS), random.choice([1, 20, 700, PAGE, PAGE, 3_000])
    if random.random() < 0.5:
        first = first // PAGE * PAGE
    keys = np.arange(first, min(first + length, ROWS))
    step = random.choice([1, 1, 1, 2, 7, 100])
    if random.random() < 0.2:
        return np.sort(np.array(random.sample(range(ROWS), random.choice([5, 400]))))
    return keys[::step]


def random_cuts(random: Random, count: int) -> list[int]:
    """Return where ``count`` rows are cut into up to three stretches, which are whole pages more often than not."""
    ends = sorted(random.choices(range(count + 1), k=2))
    return [min(round(end / PAGE) * PAGE, count) for end in ends] if random.random() < 0.7 else ends


Filter = tuple[str, np.ndarray]
"""Its text, and which of all keys it selects, if they have a row."""


def random_filter(random: Random, columns: Sequence[Column], state: State) -> Filter:
    """Return a filter of one column."""
    column = random.choice(columns)
    array = state.cells[column.name]
    name, known = column.name, array.drop_null()
    if not len(known) or column.kind == "binary" or random.random() < 0.2:
        is_null = random.random() < 0.5
        return f"{name} IS {'' if is_null else 'NOT '}NULL", _mask(pc.is_null(array) if is_null else pc.is_valid(array))
    one, other = (known[random.randrange(len(known))] for _ in range(2))
    if column.kind == "string" and random.random() < 0.3:
        pattern = random.choice(["%1%", "few%", "%:_/%", "%7", "x%", ""])
        return f"{name} LIKE '{pattern}'", _mask(pc.match_like(array, pattern))
    if random.random() < 0.4:
        few = [one, other, *(known[random.randrange(len(known))] for _ in range(random.choice([0, 20])))]
        mask = np.any([_mask(pc.equal(array, each)) for each in few], axis=0)
        return f"{name} IN ({', '.join(word(each.as_py()) for each in few)})", mask
    sign, compare = random.choice(list(_COMPARISONS.items()))
    return f"{name} {sign} {word(one.as_py())}", _mask(compare(array, one))


def combined(random: Random, one: Filter, other: Filter) -> Filter:
    """Return the conjunction or disjunction of two filters."""
    if random.random() < 0.5:
        return f"({one[0]}) AND ({other[0]})", one[1] & other[1]
    return f"({one[0]}) OR ({other[0]})", one[1] | other[1]


def word(cell: Any) -> str:
    """Return a cell as SQL text."""
    if cell is None or isinstance(cell, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[cell]
    return literal(cell)


_COMPARISONS: dict[str, Callable[..., pa.Array]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    ">=": pc.greater_equal,
}


def _mask(flags: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(flags, False))


def _one_integer() -> list[pa.Array]:
    return [pa.array(np.arange(ROWS) * 3 - ROWS)]


def _text() -> list[pa.Array]:
    return [pc.binary_join_element_wise("key ", pc.utf8_lpad(pa.array(np.arange(ROWS).astype(str)), 6, "0"), "")]


def _two() -> list[pa.Array]:
    return [pa.array((np.arange(ROWS) // 90).astype(np.int32)), *_text()]


KEYS: tuple[Callable[[], list[pa.Array]], ...] = (_one_integer, _one_integer, _text, _two)
"""Key columns of all keys, ascending."""
