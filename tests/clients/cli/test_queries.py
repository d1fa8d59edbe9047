"""Rows, measures and changes asked for by command."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import nyala
from nyala.clients.cli import scan as scan_module
from tests.clients.cli.command import Run


def test_get_prints_the_row_of_a_key(run: Run, target: list[str], tmp_path: Path) -> None:
    schema = "carrier string, number int, day date, price decimal(9,2), primary key (carrier, number, day)"
    run("create", "t", "--schema", schema, *target)
    row = {"carrier": "AA", "number": -12, "day": "2024-02-29", "price": "1.50"}
    assert run("get", "t", *target, "--", "AA", "-12", "2024-02-29").code == 4
    (tmp_path / "t.csv").write_text("carrier,number,day,price\nAA,-12,2024-02-29,1.50\n")
    run("load", "t", tmp_path / "t.csv", *target)
    assert run("get", "t", "--json", *target, "--", "AA", "-12", "2024-02-29").json == row
    assert "price\t1.50" in run("get", "t", *target, "--", "AA", "-12", "2024-02-29").lines
    for wrong, why in ((["AA"], "carrier, number, day"), (["AA", "x", "2024-02-29"], "'x' is not a valid int32")):
        done = run("get", "t", *target, "--", *wrong)
        assert done.code == 3 and why in done.err


def test_aggregates_of_groups(run: Run, target: list[str], tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,city,price\n1,b,1.5\n2,a,2\n3,b,4\n4,,1\n")
    run("load", "t", tmp_path / "t.csv", "--create", "--key", "id", *target)
    assert run("aggregate", "t", "count", "MAX(price)", *target).lines == ["count\tMAX(price)", "4\t4.0"]
    of_groups = ["aggregate", "t", "n=count", "mean=avg(price)", "--group-by", "city", "--where", "id < 4"]
    assert run(*of_groups, *target).lines == ["city\tn\tmean", "a\t1\t2.0", "b\t2\t2.75"]
    assert json.loads(run("aggregate", "t", "s=sum(id)", "--json", *target).out) == {"s": "10"}
    for wrong in (["median(price)"], ["count", "count"], ["count(none)"]):
        assert run("aggregate", "t", *wrong, *target).code == 3


def test_changes_end_at_a_limit_or_never(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with nyala.connect(url) as db:
        table = db.create_table("t", pa.schema([pa.field("id", pa.int64(), False)]), primary_key=["id"])
        table.insert({"id": [1, 2, 3]})
        asked = ["changes", "t", "--since", "1h", "--columns", "id", "--ordered", "--url", url]
        assert len(run(*asked, "--limit", "2").lines) == 3
        assert run(*asked, "--limit", "2", "--follow").code == 3
        waits: list[float] = []

        def wait(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 4:
                raise KeyboardInterrupt
            if len(waits) % 2:
                table.insert({"id": [10 + len(waits)]})

        monkeypatch.setattr(scan_module, "time", SimpleNamespace(sleep=wait))  # of this thread's loop, not of others
        done = run(*asked, "--follow")
    cells = [line.split("\t") for line in done.lines]
    assert [cell[2] for cell in cells] == ["id", "1", "2", "3", "11", "13"]
