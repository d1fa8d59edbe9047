"""The table of a soak, and the rows that one writer has in it: all cells follow from key and version."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TABLE = "rows"
SCHEMA = pa.schema(
    [
        pa.field("writer", pa.int16(), False),
        pa.field("number", pa.int32(), False),
        pa.field("version", pa.int32()),
        pa.field("text", pa.string()),
    ]
)
KEY = ["writer", "number"]
PLAIN = ["writer", "number", "version"]
"""The columns that the user ``reader`` may read."""
_DEAD = -1


def text_of(numbers: pa.Array, versions: pa.Array) -> pa.Array:
    """Return the texts of rows."""
    parts = [pc.cast(each, pa.string()) for each in (numbers, versions)]
    return pc.binary_join_element_wise(*parts, "-")


class OwnRows:
    """The rows of one writer, over a fixed range of numbers: which live, and in which version. For one thread."""

    def __init__(self, writer: int, count: int) -> None:
        self.writer = writer
        self._versions = np.full(count, _DEAD, np.int32)
        self._next = 0

    def some(self, random: Random, count: int) -> np.ndarray:
        """Return up to ``count`` different numbers of rows, living or not."""
        return np.array(sorted(random.sample(range(len(self._versions)), count)), np.int32)

    def all(self) -> np.ndarray:
        """Return all numbers of rows."""
        return np.arange(len(self._versions), dtype=np.int32)

    def written(self, numbers: np.ndarray) -> pa.RecordBatch:
        """Return rows in a version of their own; they count as written."""
        version, self._next = self._next, self._next + 1
        self._versions[numbers] = version
        columns = pa.array(numbers), pa.array(np.full(len(numbers), version, np.int32))
        writers = pa.array(np.full(len(numbers), self.writer, np.int16))
        return pa.record_batch([writers, *columns, text_of(*columns)], schema=SCHEMA)

    def deleted(self, numbers: np.ndarray) -> pa.RecordBatch:
        """Return the keys of rows; they count as deleted."""
        self._versions[numbers] = _DEAD
        writers = pa.array(np.full(len(numbers), self.writer, np.int16))
        return pa.record_batch([writers, pa.array(numbers)], schema=SCHEMA.empty_table().select(KEY).schema)

    def check(self, found: pa.Table) -> int:
        """Compare the rows that a scan found, in key order, with those that live; return how many there are."""
        live = np.flatnonzero(self._versions != _DEAD)
        numbers, versions = found["number"].to_numpy(), found["version"].to_numpy()
        assert np.array_equal(numbers, live), (
            f"writer {self.writer}: {len(np.setdiff1d(live, numbers))} rows are lost, "
            f"{len(np.setdiff1d(numbers, live))} should be gone"
        )
        wrong = np.flatnonzero(versions != self._versions[live])
        assert not len(wrong), f"writer {self.writer}: {len(wrong)} rows have another version, such as {wrong[:3]}"
        check_texts(found)
        return len(live)


def check_keys(rows: pa.Table) -> None:
    """Check that no key is there twice."""
    keys = rows["writer"].to_numpy().astype(np.int64) << 32 | rows["number"].to_numpy()
    assert len(np.unique(keys)) == len(keys), "a key is there twice"


def check_texts(rows: pa.Table) -> None:
    """Check that each row is whole: its text is that of its number and version."""
    expected = text_of(rows["number"].combine_chunks(), rows["version"].combine_chunks())
    assert rows["text"].combine_chunks().equals(expected), "rows have the cells of several versions"
