"""What a scan leaves unread: told by ``explain``, and by counting the cells that are decoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.cfile.stream import StreamReader
from nyala.engine.cfile.zone_map import PageZones
from nyala.engine.filter.bound import BoundFilter
from nyala.engine.filter.prune import LeafZonesOf, pages_may_match
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.scan.read import zones
from nyala.engine.store import Store

ROWS = 200_000
SCHEMA = pa.schema(
    [pa.field("k", pa.int64(), False), ("rising", pa.int64()), ("mixed", pa.int64()), ("text", pa.string())]
)


@pytest.fixture
def table() -> Iterator[Table]:
    """One rowset of four pages; ``rising`` follows the key, ``mixed`` does not."""
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        table = Database(store).create_table("t", SCHEMA, ["k"])
        numbers = range(ROWS)
        mixed = [number * 7919 % ROWS for number in numbers]
        table.insert({"k": numbers, "rising": numbers, "mixed": mixed, "text": [f"t{n % 50}" for n in numbers]})
        table.maintain("flush")
        yield table


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Cells decoded of base columns, by column id."""
    counts: Counter[int] = Counter()

    def counted(name: str, method: Any, size: Any) -> None:
        def count(self: StreamReader, *arguments: Any) -> Any:
            if self.key.role == "base":
                counts[self.key.column_id] += size(*arguments)
            return method(self, *arguments)

        monkeypatch.setattr(StreamReader, name, count)

    counted("read", StreamReader.read, lambda first, last: last - first)
    counted("parts", StreamReader.parts, lambda first, last: last - first)
    counted("gather", StreamReader.gather, len)
    return counts


def test_an_update_opens_no_page_for_the_rows_beside_it(table: Table, decoded: Counter[int]) -> None:
    table.update({"k": range(0, ROWS, 1_000), "rising": [-5] * (ROWS // 1_000)})
    for place in ("memory", "files"):
        plan = table.scan(where="rising = 150001").explain()
        assert (plan["chunks"], plan["chunks_read_where_updated"], plan["chunks_pruned_by_zone_map"]) == (4, 3, 0), (
            place
        )
        decoded.clear()
        assert table.scan(["k", "rising"], where="rising = -5").count() == ROWS // 1_000
        assert table.scan(["k"], where="rising = -5 and mixed < 0").count() == 0
        assert sum(decoded.values()) <= 3 * ROWS // 1_000, "only updated rows are looked at"
        table.maintain("flush_deltas")


@pytest.mark.parametrize("condition", ["rising >= 0", "text IN ('t1', 't4')", "mixed IS NOT NULL OR rising = 1"])
def test_only_pages_in_the_range_of_keys_are_judged(
    table: Table, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    judged: list[int] = []

    def watched(where: BoundFilter, pages: Mapping[int, PageZones], leaf_zones_of: LeafZonesOf) -> np.ndarray:
        found = pages_may_match(where, pages, leaf_zones_of)
        judged.append(len(found))
        return found

    monkeypatch.setattr(zones, "pages_may_match", watched)
    for first, last, count in ((0, 10, 1), (70_000, 80_000, 1), (60_000, 140_000, 3), (199_990, 199_999, 1)):
        judged.clear()
        among = table.scan(["k", "text"], where=f"k >= {first} AND k < {last}").to_arrow()
        expected = [k for k, text in zip(*among.to_pydict().values(), strict=True) if text in ("t1", "t4")]
        found = table.scan(["k"], where=f"k >= {first} AND k < {last} AND ({condition})").to_arrow()["k"].to_pylist()
        assert sorted(found) == (expected if "text" in condition else list(range(first, last)))
        assert set(judged) == {count}


def test_an_update_elsewhere_disturbs_no_page(table: Table) -> None:
    table.update({"k": range(1_000), "rising": [ROWS] * 1_000, "text": ["new"] * 1_000})
    for _ in ("memory", "files"):
        plan = table.scan(where="rising between 150000 and 150009").explain()
        assert (plan["chunks_pruned_by_zone_map"], plan["chunks_read_where_updated"]) == (2, 1)
        assert table.scan(where="rising between 150000 and 150009").count() == 10
        assert table.scan(where=f"rising = {ROWS}").count() == 1_000
        table.maintain("flush_deltas")


def test_columns_are_decoded_for_the_rows_that_are_left(table: Table, decoded: Counter[int]) -> None:
    assert table.scan(["text"], where="mixed < 5 and text <> 'none' and rising <> 3").to_arrow().num_rows == 5
    k, rising, mixed, text = (column["id"] for column in table.describe()["columns"])
    assert decoded[mixed] == 2 * 65_536, "two pages may hold such rows"
    assert 0 < decoded[text] <= 10 and 0 < decoded[rising] <= 5 and not decoded[k]


def test_a_count_reads_the_filter_only_and_no_page_that_is_told_by_its_zone_map(
    table: Table, decoded: Counter[int]
) -> None:
    assert table.scan().count() == ROWS
    assert not decoded, "counts are known"
    assert table.scan(where="rising >= 70000").count() == ROWS - 70_000
    _, rising, *_ = (column["id"] for column in table.describe()["columns"])
    assert dict(decoded) == {rising: 65_536}, "one page has both"


def test_pages_are_aggregated_together_where_none_between_them_is_left_out(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    def counted(read: Any) -> Any:
        def count(self: StreamReader, first: int, last: int) -> Any:
            if self.key.role == "base":
                asked.append((first, last))
            return read(self, first, last)

        return count

    for read in (StreamReader.read, StreamReader.parts):
        monkeypatch.setattr(StreamReader, read.__name__, counted(read))
    page = 1 << 16
    assert table.scan(where="mixed >= 1000").count() == ROWS - 1_000
    assert asked == [(0, ROWS)]
    asked.clear()
    some = f"mixed >= 0 and (rising < 10 or rising >= {2 * page + 5})"
    assert table.scan(where=some).aggregate({"n": ("*", "count")}).to_pylist() == [{"n": 10 + ROWS - 2 * page - 5}]
    assert set(asked) == {(0, page), (2 * page, 3 * page)}, "no row of the second page can match, all of the fourth do"


def test_bounds_come_from_zone_maps(table: Table, decoded: Counter[int]) -> None:
    bounds = {"a": ("mixed", "min"), "b": ("text", "max"), "n": ("text", "count")}
    assert table.scan().aggregate(bounds).to_pylist() == [{"a": 0, "b": "t9", "n": ROWS}]
    assert not decoded
    table.delete({"k": [0]})
    assert table.scan().aggregate(bounds).to_pylist() == [{"a": 1, "b": "t9", "n": ROWS - 1}]
    assert max(decoded.values()) <= 65_536, "only the page of the dead row is read"


def test_keys_named_one_by_one_are_looked_up(table: Table, decoded: Counter[int]) -> None:
    table.delete({"k": [7]})
    keys = [*range(0, ROWS, 1_000), 7, -1, ROWS]
    scan = table.scan(["rising"], where=[("k", "in", keys), ("rising", "<", 100_000)], ordered=True)
    assert scan.explain()["rowsets_looked_up_by_key"] == 1
    decoded.clear()
    assert scan.to_arrow()["rising"].to_pylist() == list(range(0, 100_000, 1_000))
    _, rising, *_ = (column["id"] for column in table.describe()["columns"])
    assert decoded[rising] <= 2 * len(keys)
    assert table.scan(where="k = 7").count() == 0 and table.scan(where="k = 8").count() == 1


@pytest.mark.parametrize("ordered", [False, True])
def test_a_limit_ends_the_reading(table: Table, decoded: Counter[int], ordered: bool) -> None:
    for where in (None, "mixed >= 0"):
        decoded.clear()
        assert table.scan(limit=1_000, where=where, ordered=ordered).to_arrow().num_rows == 1_000
        assert 0 < max(decoded.values()) <= 1_024
