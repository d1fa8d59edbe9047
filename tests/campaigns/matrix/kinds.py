"""Every type of column with its extreme cells, and its literals; expectations are worked out by pyarrow.compute."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from nyala.schemas.cells.literal import literal_json
from nyala.schemas.cells.types import LogicalType

TEXTS = (
    "",
    "\0",
    "a",
    "a\0",
    "a\0b",
    "aa",
    "ab",
    "abcde",
    "abcdef",  # varchar(5) cuts it
    "a%b_c\\",
    "\u00e9",
    "e\u0301",  # the same to a reader, two characters
    "e\u0301" * 3,
    "\u65e5\u672c",
    "\uffff",
    "\U0001f600" * 6,
    "\U0010ffff",
)
LONG_TEXTS = ("x" * 70, "x" * 69 + "y")
HUGE_TEXTS = ("\u00e9" * 32_768, "y" * 65_536)
BYTES = (b"", b"\0", b"\0\0", b"\0\1", b"a", b"a\0", b"a\0b", b"ab", b"\x7f", b"\x80", b"\xff", b"\xff\0", b"\xff" * 70)
HUGE_BYTES = (b"\0" * 65_536, b"\xff" * 65_536)
FLOATS = (-math.inf, -1.5, -0.0, 0.0, 0.1, 1.0, 1.5, math.inf, math.nan)


def _integers(bits: int) -> tuple[int, ...]:
    end = 1 << (bits - 1)
    return (-end, 1 - end, -2, -1, 0, 1, 2, end - 2, end - 1)


def _decimals(precision: int, scale: int) -> tuple[Decimal, ...]:
    nines = (9,) * precision
    digits = (nines, (1, 0), (1,), (0,))
    below = [Decimal((1, part, -scale)) for part in digits]
    return (*below, *(number.copy_abs() for number in reversed(below[:-1])))


def _floats(kind: type[np.floating]) -> tuple[float, ...]:
    information = np.finfo(kind)
    ends = (float(information.max), float(information.smallest_subnormal))
    return (*(float(kind(cell)) for cell in FLOATS), *ends, *(-cell for cell in ends))


@dataclass(frozen=True)
class Kind:
    """A type with cells, in ascending order but for NaN and the zeros; dates and timestamps are integers."""

    word: str
    cells: tuple[Any, ...]
    seldom: tuple[Any, ...] = ()
    """So large that only a few rows have them."""

    @property
    def logical(self) -> LogicalType:
        return LogicalType.parse(self.word)

    def array(self, cells: list[Any]) -> pa.Array:
        """Return cells as the table holds them: a varchar is cut."""
        return arrow(self.logical, cells)

    def literal(self, cell: Any) -> Any:
        """Return a cell as the JSON of a filter."""
        return literal_json(cell)


def arrow(kind: LogicalType, cells: list[Any]) -> pa.Array:
    """Return cells, dates and timestamps among them integers, as an array of the type."""
    if kind.name == "varchar":
        return pa.array([None if cell is None else cell[: kind.length] for cell in cells], pa.string())
    integers = {"date": pa.int32(), "timestamp[us]": pa.int64()}.get(kind.name)
    return pa.array(cells, integers).view(kind.arrow) if integers else pa.array(cells, kind.arrow)


KINDS = (
    Kind("bool", (False, True)),
    *(Kind(f"int{bits}", _integers(bits)) for bits in (8, 16, 32, 64)),
    Kind("date", (-719_162, -719_161, -1, 0, 1, 19_782, 2_932_895, 2_932_896)),
    Kind("timestamp[us]", (*_integers(64), -62_135_596_800_000_000, 253_402_300_799_999_999)),
    Kind("float", _floats(np.float32)),
    Kind("double", _floats(np.float64)),
    Kind("decimal(9,2)", _decimals(9, 2)),
    Kind("decimal(18,6)", _decimals(18, 6)),
    Kind("decimal(38,10)", _decimals(38, 10)),
    Kind("string", TEXTS + LONG_TEXTS, HUGE_TEXTS),
    Kind("varchar(5)", TEXTS),
    Kind("binary", BYTES, HUGE_BYTES),
)
