"""Run length: each run of equal cells once. The default of BOOL; good for sorted columns or few values.

Payload, little-endian::

    | runs u4 | last row of each run u2 x runs | cell of each run |
    | 0    u4 | plain payload                                     |

The last rows ascend strictly and end with the page's last row, so any row is found by binary search. The second form is
used if runs would take more space than plain cells (random BOOL cells would take 24 bits a row): run length never costs
more than 4 bytes a page.
"""

from collections.abc import Iterator

import numpy as np

from ..kernels.pages.run_length import LASTS_SLACK_BYTES, find_runs, take_cells, write_runs
from ..vectors.memory.memory import address_of, allocate
from ..vectors.physical import PhysicalType
from ..vectors.vector import FixedVector, Vector
from .codec import PAGE_ROWS, CorruptPageError, check_range, check_rows, require
from .plain import PlainCodec

_COUNT = np.dtype("<u4")
_LAST = np.dtype("<u2")
_PLAIN = PlainCodec()


class RunLengthCodec:
    """Store runs of equal cells of BOOL and of integers up to 8 bytes."""

    code = 3
    name = "run_length"
    fills_nulls = False

    def supports(self, physical: PhysicalType) -> bool:
        """Return True for BOOL and the integers that fit a machine word."""
        return physical is PhysicalType.BOOL or (physical.is_integer and physical.width <= 8)

    def encode(self, vector: Vector, physical: PhysicalType) -> np.ndarray:
        """Return the payload, in the smaller of the two forms."""
        assert isinstance(vector, FixedVector), "run length stores fixed widths"
        assert len(vector) <= PAGE_ROWS, "more rows than a page holds"
        cells = np.ascontiguousarray(vector.values, physical.dtype)
        plain = _PLAIN.encode(vector, physical)
        lasts = _run_lasts(cells)
        runs_size = len(lasts) * (_LAST.itemsize + physical.width)
        if not len(lasts) or runs_size >= len(plain):
            return np.concatenate([np.zeros(1, _COUNT).view(np.uint8), plain])
        head = _COUNT.itemsize + lasts.nbytes
        payload = allocate(_COUNT.itemsize + runs_size, np.uint8)
        payload[: _COUNT.itemsize].view(_COUNT)[0] = len(lasts)
        payload[_COUNT.itemsize : head] = lasts.view(np.uint8)
        target = address_of(payload) + head
        take_cells(address_of(cells), physical.width, address_of(lasts), len(lasts), target)
        return payload

    def check(self, payload: np.ndarray, physical: PhysicalType, row_count: int) -> None:
        """Check that the runs cover the page's rows, each at least one."""
        require(row_count <= PAGE_ROWS, f"{row_count} rows are too many for a page")
        runs = _run_count(payload)
        if runs == 0:
            _PLAIN.check(payload[_COUNT.itemsize :], physical, row_count)
            return
        size = _COUNT.itemsize + runs * (_LAST.itemsize + physical.width)
        require(len(payload) == size, f"it has {len(payload)} bytes, but {runs} runs take {size}")
        lasts, cells = _split(payload, physical, runs)
        require((lasts[1:] > lasts[:-1]).all(), "the ends of the runs are not in ascending order")
        require(int(lasts[-1]) + 1 == row_count, f"the last run ends at row {lasts[-1]} of {row_count}")
        require(physical is not PhysicalType.BOOL or cells.max() <= 1, "a boolean cell is neither 0 nor 1")

    def decode(self, payload: np.ndarray, physical: PhysicalType, row_count: int, first: int, last: int) -> Vector:
        """Return rows [first, last)."""
        runs = _run_count(payload)
        if runs == 0:
            return _PLAIN.decode(payload[_COUNT.itemsize :], physical, row_count, first, last)
        check_range(first, last, row_count)
        values = allocate(last - first, physical.dtype)
        if first < last:
            lasts, _ = _split(payload, physical, runs)
            first_run = int(lasts.searchsorted(_LAST.type(first)))
            source = address_of(payload) + _COUNT.itemsize
            write_runs(
                source,
                source + lasts.nbytes,
                physical.width,
                first,
                last,
                first_run,
                address_of(values),
            )
        return FixedVector(values)

    def gather(self, payload: np.ndarray, physical: PhysicalType, row_count: int, rows: np.ndarray) -> Vector:
        """Return the cells at ``rows``, each found by binary search."""
        runs = _run_count(payload)
        if runs == 0:
            return _PLAIN.gather(payload[_COUNT.itemsize :], physical, row_count, rows)
        rows = check_rows(rows, row_count)
        lasts, cells = _split(payload, physical, runs)
        return FixedVector(cells[lasts.searchsorted(rows.astype(_LAST))])

    def ranges_of_row(
        self, payload: np.ndarray, physical: PhysicalType, row_count: int, row: int
    ) -> Iterator[tuple[int, int]]:
        """See ``Codec``. Runs are searched, and are few."""
        yield 0, _COUNT.itemsize
        if _run_count(payload):
            yield 0, len(payload)
            return
        for first, last in _PLAIN.ranges_of_row(payload[_COUNT.itemsize :], physical, row_count, row):
            yield _COUNT.itemsize + first, _COUNT.itemsize + last


def _run_lasts(cells: np.ndarray) -> np.ndarray:
    """Return the last row of each run (u2)."""
    if not len(cells):
        return np.empty(0, _LAST)
    lasts = allocate(len(cells) + LASTS_SLACK_BYTES, _LAST)
    runs = find_runs(address_of(cells), len(cells), cells.dtype.itemsize, address_of(lasts))
    return lasts[:runs]


def _run_count(payload: np.ndarray) -> int:
    if len(payload) < _COUNT.itemsize:
        raise CorruptPageError(f"{len(payload)} bytes are too few: the page begins with the number of its runs")
    return int(payload[: _COUNT.itemsize].view(_COUNT)[0])


def _split(payload: np.ndarray, physical: PhysicalType, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the last rows and the cells of the runs inside a payload, as views."""
    head = _COUNT.itemsize + _LAST.itemsize * runs
    return payload[_COUNT.itemsize : head].view(_LAST), payload[head:].view(physical.dtype)
