"""The far object store of the bench counts as a cloud does, and each case of a store in it has a figure."""

from pathlib import Path

import pytest
from rich.console import Console

from bench.engine import bucket, bucket_requests
from bench.engine.far_objects import DELETE, GET, LIST, PUT, FarObjects
from bench.report import Suite

QUIET = Console(quiet=True)


def test_requests_are_counted_as_a_cloud_does() -> None:
    objects = FarObjects(0, 0)
    for number in range(2_500):
        objects.put(f"a/{number}", b"content")
    objects.put_if_absent("b", b"x")
    assert len(objects.list("a/", "")) == 2_500
    assert objects.get_ranges("a/1", [(0, 3), (4, 2)]) == [b"con", b"en"] and objects.get("b") == b"x"
    objects.delete([f"a/{number}" for number in range(1_500)])
    objects.put("large", bytes((64 << 20) + 1))
    assert dict(objects.requests) == {PUT: 2_501 + 2 + 9, LIST: 3, GET: 3, DELETE: 2}
    assert objects.got_bytes == 3 + 2 + 1


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"PUT_SECONDS": 0.001, "GET_SECONDS": 0.001, "GETS": 5, "SINGLE_ROWS": 3, "WRITERS": 4, "WRITER_ROWS": 2}
    for name, value in sizes.items():
        monkeypatch.setattr(bucket, name, value)
    monkeypatch.setattr(bucket_requests, "PUT_SECONDS", 0.001)
    monkeypatch.setattr(bucket_requests, "SECONDS", 0.2)
    monkeypatch.setattr(bucket_requests, "ROWS", 30_000)


@pytest.mark.night
def test_every_case_has_a_figure(tmp_path: Path) -> None:
    found = bucket.BucketBench(3_000, 1, tmp_path / "work", QUIET, with_openings=False).run()
    cases = Suite("bucket", {}, found.all).cases()
    both = {bucket.LOCAL, bucket.FAR, bucket.RATIO}
    assert set(cases["load in batches of 10,000 rows"]) == set(cases["two columns, warm"]) == both
    assert set(cases["acknowledgement of a row, 4 writers"]) == both - {bucket.RATIO}
    wasted = [result.median for case, row in cases.items() for result in row.values() if "beside" in case]
    assert len(wasted) == len(bucket.COLUMNS) and all(0.5 < each < 2 for each in wasted), (
        "small files are fetched whole at an opening"
    )


def test_requests_have_their_price(tmp_path: Path) -> None:
    cases = bucket_requests.run(0, 1, tmp_path / "work", QUIET).cases()
    for row in cases.values():
        assert row["price"].median == pytest.approx(
            (5 * row[PUT].median + 5 * row[LIST].median + 0.4 * row[GET].median) / 1e4
        )
    load = cases["a load of 30,000 rows"]
    assert load[PUT].median > 3 and load[LIST].median == 0
