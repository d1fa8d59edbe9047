"""A few tables by every way, and mistakes on a way that are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from nyala.clients.cli import output
from nyala.clients.convert import casting
from nyala.engine.record.change import ChangeKind
from nyala.engine.recovery.log_replay import LoggedTablets
from nyala.engine.rowset.native import absent
from nyala.engine.vectors import nested
from nyala.schemas.errors import StoreError
from tests.campaigns.nested import lives
from tests.campaigns.nested.campaign import run
from tests.campaigns.nested.lives import LIVES
from tests.campaigns.nested.second import Reader
from tests.dose import by_night, dose

Patch = pytest.MonkeyPatch


@pytest.mark.timeout(3600)
def test_cells_come_as_they_were_by_every_way() -> None:
    assert run(dose(4, 40), 0) >= dose(4, 40)


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.timeout(3600)
def test_cells_come_as_they_were_through_every_life(life: str) -> None:
    assert run(dose(1, 40), 0, life=life) >= dose(1, 40)


def _nulls_become_empty(monkeypatch: Patch) -> None:
    """A layout that forgets which lists are NULL."""
    real = casting.plain_layout

    def plain_layout(values: pa.Array, target: Any = None) -> pa.Array:
        cells = real(values, target)
        return (
            cells if not isinstance(cells, pa.LargeListArray) else type(cells).from_arrays(cells.offsets, cells.values)
        )

    monkeypatch.setattr(casting, "plain_layout", plain_layout)


def _a_null_item_is_zero(monkeypatch: Patch) -> None:
    """Numbers inside of lists are read without their bitmap."""
    real = nested._numbers
    monkeypatch.setattr(nested, "_numbers", lambda kind, cells, count, valid: real(kind, cells, count, None))


def _text_loses_a_line(monkeypatch: Patch) -> None:
    """Rows of JSON whose last one is not written."""
    real = output.WRITERS[".jsonl"]
    lost = {**output.WRITERS, ".jsonl": lambda reader, file: real(_without_last(reader), file)}
    monkeypatch.setattr(output, "WRITERS", lost)


def _without_last(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    rows = reader.read_all()
    return rows.slice(0, rows.num_rows - 1).to_reader()


PLANTED = {each.__name__.strip("_"): each for each in (_nulls_become_empty, _a_null_item_is_zero, _text_loses_a_line)}


@pytest.mark.parametrize("name", by_night(PLANTED, day=["nulls_become_empty", "text_loses_a_line"]))
def test_a_planted_mistake_is_found(name: str, monkeypatch: Patch) -> None:
    PLANTED[name](monkeypatch)
    with pytest.raises((AssertionError, StoreError)):
        run(100, 0, shrinks=False)


def _changes_in_the_log_are_lost(monkeypatch: Patch) -> None:
    """Only new rows are taken from the log."""
    parts: Callable[..., list[Any]] = LoggedTablets.parts
    lost = ChangeKind.UPDATE
    monkeypatch.setattr(LoggedTablets, "parts", lambda self, rows: [] if rows.kind == lost else parts(self, rows))


def _a_step_is_acknowledged_early(monkeypatch: Patch) -> None:
    monkeypatch.setattr(lives, "PLANTED", ["--early"])


def _the_second_process_looks_once(monkeypatch: Patch) -> None:
    reader = Reader("--stale")
    monkeypatch.setattr(Reader, "running", lambda: reader)


def _defaults_are_lost(monkeypatch: Patch) -> None:
    """Rows of before a column have NULL in place of its default."""
    monkeypatch.setattr(absent, "from_json", lambda *given: None)


IN_A_LIFE = [
    ("moves", _changes_in_the_log_are_lost),
    ("replicas", _changes_in_the_log_are_lost),
    ("kill", _changes_in_the_log_are_lost),
    ("kill", _a_step_is_acknowledged_early),
    ("second_process", _the_second_process_looks_once),
    ("alters", _defaults_are_lost),
]


@pytest.mark.night
@pytest.mark.parametrize(("life", "plant"), IN_A_LIFE)
def test_a_planted_mistake_is_found_in_a_life(life: str, plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, StoreError)):
        run(30, 0, shrinks=False, life=life)
