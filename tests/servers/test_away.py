"""One of two servers is away: what needs none of its tablets goes on, and what does says which server that is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.schemas.scan import ScanSpec

from .pair import Pair

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.int64())])


class _Away:
    """In the place of a server's gateway."""

    def __getattr__(self, verb: str) -> Any:
        def refuse(*_: Any, **__: Any) -> Any:
            raise nyala.UnavailableError("the server cannot be reached: connection refused")

        return refuse


@pytest.fixture
def pair() -> Pair:
    """With a table on both servers, and one that has moved to the first. The second is away."""
    made = Pair()
    for name in ("both", "here"):
        table = made.db.create_table(name, SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=4)])
        table.insert({"id": range(100), "v": range(100)})
        assert {place.server for place in table.tablets()} == {"a", "b"}
    for place in made.db.table("here").tablets():
        if place.server == "b":
            made.db.move_tablet("here", place.tablet, "a", server="b")
    made.keys_here = [key for key in range(100) if made.stores["a"].scan(  # type: ignore[attr-defined]
        ScanSpec(table="both", here=True, where=f"id = {key}")).to_reader().read_all().num_rows]  # fmt: skip
    made.back = made.gateways["b"]  # type: ignore[attr-defined]
    made.gateways["b"] = _Away()  # type: ignore[assignment]
    return made


@pytest.mark.parametrize("way", ["client", "gateway"])
def test_a_query_that_does_not_need_it_is_answered(pair: Pair, way: str) -> None:
    store: Any = pair.db._store if way == "client" else pair.gateways["a"]
    assert sorted(store.tables()) == ["both", "here"]
    plan = store.plan(ScanSpec(table="here"))
    assert sum(split.rows for split in plan.splits) == 100
    assert store.scan(ScanSpec(table="here")).to_reader().read_all().num_rows == 100
    key, *others = pair.keys_here  # type: ignore[attr-defined]
    assert 0 < len(others) < 99
    found = store.scan(ScanSpec(table="both", where=f"id = {key}")).to_reader().read_all()
    assert found.to_pylist() == [{"id": key, "v": key}]
    assert store.last_change("here") > 0
    for spec in (ScanSpec(table="both"), ScanSpec(table="both", where="id IN (1, 2, 3, 4, 5, 6, 7, 8, 9)")):
        with pytest.raises(nyala.UnavailableError, match="the server 'b': the server cannot be reached"):
            store.plan(spec)


def test_it_is_read_again_when_it_is_back(pair: Pair) -> None:
    """Also what it has acknowledged at a time that the others have not come to."""
    pair.gateways["b"] = pair.back  # type: ignore[attr-defined]
    both = pair.db.table("both")
    ahead = pair.stores["b"].now() + (2_000_000 << 12)
    pair.stores["b"].now(ahead)
    key = next(key for key in range(100) if key not in pair.keys_here)  # type: ignore[attr-defined]
    both.update({"id": [key], "v": [-1]})
    assert both.get(key) == {"id": key, "v": -1}
    assert both.scan().to_arrow().num_rows == 100 and -1 in both.scan().to_arrow()["v"].to_pylist()
