"""What of a history is there after its bucket was put back, or had to be."""

from __future__ import annotations

import pytest

from nyala.schemas.rows.write import WriteResult
from tests.simulation.store.checks import ViolationError
from tests.simulation.store.history import NEVER, Call
from tests.simulation.store.plan import Step

from .rewound import is_kept

_COPIED_AT, _SAFE = 10, 100


def _write(began: int, ended: int, timestamp: int | None) -> Call:
    answer = None if timestamp is None else WriteResult(timestamp=timestamp, rows=1, applied=1)
    return Call("writer", Step("write"), 0, began, ended, answer=answer)


@pytest.mark.parametrize(
    ("began", "ended", "timestamp", "kept"),
    [(1, 2, 99, True), (9, 12, 99, True), (9, 12, 101, False), (11, 12, 101, False), (3, NEVER, None, True)],
)
def test_writes_are_kept_up_to_the_copy(began: int, ended: int, timestamp: int | None, kept: bool) -> None:
    assert is_kept(_write(began, ended, timestamp), _SAFE, _COPIED_AT) is kept


def test_reads_are_forgotten() -> None:
    assert not is_kept(Call("reader", Step("scan"), 0, 1, 2, answer={}), _SAFE, _COPIED_AT)


def test_a_copy_that_lacks_an_answered_write_is_seen() -> None:
    with pytest.raises(ViolationError, match="was answered before the bucket was copied"):
        is_kept(_write(1, 2, 101), _SAFE, _COPIED_AT)
