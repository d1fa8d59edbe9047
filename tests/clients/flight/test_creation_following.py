"""A table that is made with its data is there with it, or not at all, whichever process dies meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.flight import server_wait
from nyala.engine.store import Store
from nyala.schemas.errors import RowErrors, UnavailableError
from tests.doubles.pair import Pair

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
ROWS = pa.table({"id": range(10), "v": range(10)}, schema=SCHEMA)


@pytest.fixture
def pair(store: Store) -> Iterator[Pair]:
    pair = Pair(store)
    yield pair
    pair.close()


def dies_in(pair: Pair, call: str, is_done: bool) -> None:
    """Let the first process die in a call, after its effect or before it, and the second one have the store."""
    method = getattr(pair.store, call)

    def dying(*given: Any, **more: Any) -> Any:
        found = method(*given, **more) if is_done else None
        pair.first.die()
        pair.give_to(pair.second)
        return found

    setattr(pair.first, call, dying)


def test_a_table_that_is_made_with_its_data_is_loaded_though_the_answer_was_lost_that_it_was_made(pair: Pair) -> None:
    dies_in(pair, "create_table", is_done=True)
    with nyala.connect(pair.url) as db:
        assert db.create_table("more", SCHEMA, ["id"], data=ROWS).count() == 10
    assert Database(pair.store).table("more").count() == 10


def test_a_table_that_another_one_made_is_not_loaded(pair: Pair) -> None:
    Database(pair.store).create_table("more", SCHEMA, ["id"]).insert({"id": [1], "v": [1]})
    dies_in(pair, "create_table", is_done=False)
    with (
        nyala.connect(pair.url) as db,
        pytest.raises(UnavailableError, match="create_table was carried out"),
    ):
        db.create_table("more", SCHEMA, ["id"], data=ROWS)
    assert Database(pair.store).table("more").count() == 1


@pytest.mark.parametrize("is_done", [True, False])
def test_a_table_whose_data_was_refused_is_dropped_though_an_answer_is_lost(pair: Pair, is_done: bool) -> None:
    dies_in(pair, "drop_table", is_done)
    twice = {"id": [1, 1], "v": [1, 2]}
    with nyala.connect(pair.url) as db, pytest.raises(RowErrors) as refused:
        db.create_table("more", SCHEMA, ["id"], data=twice)
    assert pair.store.tables() == [] and not hasattr(refused.value, "__notes__")


def test_a_table_that_could_not_be_dropped_is_told(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_wait, "FOLLOW_SECONDS", 0.1)
    dies_in(pair, "drop_table", is_done=False)
    monkeypatch.setattr(pair, "give_to", lambda member: None)
    with nyala.connect(pair.url) as db, pytest.raises(RowErrors) as refused:
        db.create_table("more", SCHEMA, ["id"], data={"id": [1, 1], "v": [1, 2]})
    assert refused.value.__notes__ == ["the table 'more' may still exist without rows: drop the table"]
