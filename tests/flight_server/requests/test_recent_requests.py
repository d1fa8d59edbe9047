"""Recent requests: which are kept, how the console shows them, and what it says of slow ones."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from nyala.flight_server.http.console.charts import Samples, charts
from nyala.flight_server.http.console.explanation import explained
from nyala.flight_server.http.console.frame import page
from nyala.flight_server.http.console.graph import Unit
from nyala.flight_server.requests.recent_requests import RecentRequest, RecentRequests
from nyala.flight_server.requests.scan_summary import Scanned
from nyala.schemas.rows.prune_count import PruneCount
from tests.flight_server.http_client import Port
from tests.flight_server.served import SCHEMA
from tests.flight_server.test_console import filled, tree, words


def rows_of(text: str) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in tree(text).iter("tr")]


def recent(name: str = "1", seconds: float = 1.0, scanned: Scanned | None = None, **times: float) -> RecentRequest:
    spent = {"admission_seconds": 0.0, "client_seconds": 0.0, "processor_seconds": 0.0, **times}
    return RecentRequest(name, "do_get", "t", None, "", 0, seconds, rows=7, bytes=1, code="", scanned=scanned, **spent)


def test_a_recent_scan_is_explained(port: Callable[..., Port]) -> None:
    one = port()
    filled(one)
    scanned = one.served.get({"table": "homes", "where": "id < 100 and city = 'hunter2'", "columns": ["id"]})
    assert scanned.num_rows == 100
    status, text = one.ask("/console/scans")
    assert status == 200 and "1 columns; filter on city, id" in words(text) and "hunter2" not in text
    links = [each.get("href") or "" for each in tree(text).iter("a")]
    (link,) = {each for each in links if each.startswith("/console/scan?")}
    status, text = one.ask(link)
    assert status == 200 and "It returned 100 rows" in words(text) and "hunter2" not in text
    rows = {row[0]: row[1] for row in rows_of(text)}
    assert (rows["Rowsets read"], rows["Rowsets without a key in range, or empty"]) == (
        "1",
        "3",
    )  # an empty one is in memory
    assert "3 of 4 rowsets were left out: no key in range, or empty." in words(text)
    assert re.fullmatch(r"[\d.,e+-]+ (s|ms|us)", rows["reading and computing"])
    assert one.ask("/console/scan?id=00")[0] == 404


def test_a_running_scan_is_shown(port: Callable[..., Port]) -> None:
    one = port()
    ids = np.arange(2_000_000)
    one.served.put(
        "homes", pa.record_batch({"id": ids, "city": pa.nulls(len(ids), "string"), "price": ids / 2}, SCHEMA)
    )
    reader = one.served.client.do_get(fl.Ticket(b'{"table":"homes"}'))
    reader.read_chunk()
    (found,) = (row for row in rows_of(one.ask("/console/scans")[1]) if row[0] == "homes")
    assert found[3] == "all columns" and int(found[5].replace(",", "")) > 0
    assert sum(chunk.data.num_rows for chunk in reader) > 0


def test_a_failed_scan_tells_its_code(port: Callable[..., Port]) -> None:
    one = port()
    with pytest.raises(fl.FlightError):
        one.served.get({"table": "homes", "where": "castle = 'hunter2'"})
    text = one.ask("/console/scans")[1]
    codes = [row[9] for row in rows_of(text) if len(row) == 10]
    assert codes == ["Error", "INVALID_ARGUMENT"] and "hunter2" not in text


@pytest.mark.parametrize(
    "asked",
    [
        {"where": "city = = 'hunter2'"},
        {"where": "castle = 'hunter2'"},
        {"where": 'city = "hunter2"'},
        {"order_by": [{"column": "hunter2"}]},
        {"aggregate": {"n": ["*", "count"]}, "group_by": ["hunter2"]},
        {"table": "castles", "where": "city '"},
    ],
)
def test_no_scan_that_fails_spoils_the_page_or_shows_what_it_says(
    port: Callable[..., Port], asked: dict[str, Any]
) -> None:
    one = port()
    with pytest.raises(fl.FlightError):
        one.served.get({"table": "homes", **asked})
    status, text = one.ask("/console/scans")
    (link,) = {str(each.get("href")) for each in tree(text).iter("a") if "/scan?" in str(each.get("href"))}
    for code, shown in ((status, text), one.ask(link)):
        assert code == 200 and "hunter2" not in shown
        assert ("; a filter" in words(shown)) == ("where" in asked)
    assert "hunter2" not in repr(one.served.server.calls.recent.scans.all())


def test_the_ring_keeps_no_values_and_no_long_names(port: Callable[..., Port]) -> None:
    one = port()
    one.served.put("homes", one.served.rows(10))
    one.served.get({"table": "homes", "where": "city = 'hunter2'", "order_by": [{"column": "price"}], "limit": 3})
    with pytest.raises(fl.FlightError):
        one.served.get({"table": "x" * 100_000})
    with pytest.raises(fl.FlightError):
        one.served.action("execute", {"table": "x" * 100_000, "kind": "delete"})
    recent = one.served.server.calls.recent
    failed, found = recent.scans.all()
    assert found.scanned and found.scanned.shape == "all columns; filter on city; order by price; limit 3"
    assert failed.table == "x" * 256 and "hunter2" not in repr(found)
    assert all(len(each.table) <= 256 for each in recent.writes.all())


def test_writes_are_shown_with_their_latencies(port: Callable[..., Port]) -> None:
    one = port()
    one.served.put("homes", one.served.rows(1000))
    done = one.served.action("execute", {"table": "homes", "kind": "delete", "where": "city = 'city 1'"})
    text = one.ask("/console/writes")[1]
    rows = rows_of(text)
    counts = {row[0]: row[1] for row in rows if len(row) == 7}
    assert (counts["do_put"], counts["execute"]) == ("1", "1") and int(counts["this server"]) >= 2
    found = [(row[1], row[2], row[4]) for row in rows if len(row) == 10][1:]
    assert found == [("execute", "homes", str(done["applied"])), ("do_put", "homes", "1,000")]
    assert "city 1" not in text


def test_recent_requests_are_bounded() -> None:
    kept = RecentRequests()
    for number in range(1000):
        kept.add(recent(str(number), number / 500))
    assert [each.id for each in kept.writes.all()] == [str(number) for number in range(999, 899, -1)]
    assert kept.found("950") and not kept.found("5") and not kept.scans.all()
    kept.add(recent("a scan", 0.1, Scanned("")))
    assert [each.id for each in kept.scans.all()] == ["a scan"]
    assert [each.id for each in kept.slow.all()] == [str(number) for number in range(999, 899, -1)]


@pytest.mark.parametrize(
    ("spent", "counts", "said"),
    [
        ({"admission_seconds": 5.0}, PruneCount(), "scans_max"),
        ({"client_seconds": 8.0}, PruneCount(), "Its client took 80 %"),
        ({"processor_seconds": 9.0}, PruneCount(rows_in_chunks=10**6, rowsets_read=1), "read 1,000,000 rows to return"),
        ({"processor_seconds": 1.0}, PruneCount(), "the thread of the scan computed only for 1.00 s"),
        ({"processor_seconds": 9.9}, PruneCount(chunks_touched_only=3), "major compaction"),
        ({"processor_seconds": 9.9}, PruneCount(chunks_read=1, chunks_by_zone_map=2), "2 of 3 ranges"),
        ({"processor_seconds": 9.9}, PruneCount(rowsets_read=20), "merged 20 rowsets"),
        ({"processor_seconds": 9.9}, PruneCount(), "waited for nothing"),
        ({"processor_seconds": 9.9}, None, "not counted here"),
    ],
)
def test_what_made_a_scan_slow_is_told(spent: dict[str, float], counts: PruneCount | None, said: str) -> None:
    scanned = Scanned("", ("a",), is_ordered=True, planned_seconds=0.01, counts=counts)
    found = explained(recent("1", 10.0, scanned, **spent))
    assert len([text for text in found if said in text]) == 1


def test_charts_show_what_happened(port: Callable[..., Port]) -> None:
    one = port()
    samples, server = Samples(), one.served.server
    samples.take(server)
    assert "begin a few seconds" in page("x", charts(samples)).write().decode()
    one.served.put("homes", one.served.rows(500))
    for _ in range(2):
        time.sleep(0.01)
        samples.take(server)
    drawn: dict[str, tuple[list[str], str, str]] = {}
    for figure in tree(page("x", charts(samples)).write().decode()).iter("figure"):
        line, about = next(figure.iter("polyline")), next(figure.iter("title"))
        axis = [each.text or "" for each in figure.iter("text")]
        drawn[figure[0][0].text or ""] = (line.get("points") or "").split(), about.text or "", axis[2]
    points, told, top = drawn["Rows written a second"]
    first, last = (float(point.split(",")[1]) for point in points)
    assert first < last and re.search(r"Now 0, on average [\d,]+, at most [\d,]+", told)
    assert re.fullmatch("[125]0*", top.replace(",", "")), "the axis ends at a round number"
    assert drawn["Memory of the process"][0][0].split(",")[1] != f"{last}"


@pytest.mark.parametrize(
    ("unit", "greatest", "end"),
    [
        *((Unit.COUNT, 0.0, "1"), (Unit.COUNT, 1.0, "1"), (Unit.COUNT, 1.1, "2"), (Unit.COUNT, 5_001.0, "10,000")),
        *((Unit.SECONDS, 0.003, "5 ms"), (Unit.SECONDS, 70.0, "100.00 s"), (Unit.SECONDS, 2e-6, "2 us")),
        *((Unit.BYTES, 100.0, "100 B"), (Unit.BYTES, 1025.0, "2.0 KiB"), (Unit.BYTES, 300.0 * 2**20, "500.0 MiB")),
        *((Unit.BYTES, 1000.0 * 2**20, "1000.0 MiB"), (Unit.BYTES, 1023.0 * 2**20, "2.0 GiB")),
    ],
)
def test_an_axis_ends_at_a_round_number(unit: Unit, greatest: float, end: str) -> None:
    assert unit.shown(unit.end(greatest)) == end and unit.end(greatest) >= greatest
