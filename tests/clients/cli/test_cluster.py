"""``nyala cluster``: as an operator uses it, over two servers."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from tests.clients.cli.command import Run
from tests.clients.cluster.cluster import Cluster

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Two servers; a table of four tablets is on one of them."""
    with tempfile.TemporaryDirectory() as folder:  # short: the path of a socket has few characters
        running = Cluster(Path(folder))
        db = running.connect()
        table = db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=4)])
        table.insert({"id": range(1_000), "n": range(1_000)})
        table.maintain("flush")
        for place in table.tablets():
            if place.server == "b":
                db.move_tablet("t", place.tablet, "a", server="b")
        yield running
        running.close()


@pytest.fixture(params=["url", "placement"])
def named(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> list[str]:
    """The options that name the servers."""
    if request.param == "url":
        return ["--url", cluster.members["a"].location]
    path = tmp_path / "servers.json"
    path.write_text(cluster.placement.model_dump_json())
    return ["--placement", str(path)]


def test_a_healthy_cluster(run: Run, named: list[str]) -> None:
    done = run("cluster", "check", *named)
    assert done.code == 0, done.err
    assert done.lines[0].split("\t")[:4] == ["server", "state", "version", "tablets"]
    assert done.lines[1].startswith("a\tok\t") and done.lines[2].startswith("b\tok\t")
    assert [line.split("\t")[:4] for line in done.lines if line.startswith("t\t")] == [["t", "1", "4 of 4", "1,000"]]
    assert done.lines[-1] == "healthy: 2 servers, 1 table"
    found = run("cluster", "check", *named, "--json").json
    assert found["is_healthy"] and found["faults"] == [] and found["tables"][0]["servers"] == {"a": 4, "b": 0}


def test_a_server_that_is_away_is_told_and_fails_the_command(run: Run, cluster: Cluster, named: list[str]) -> None:
    cluster.members["b"].stop()
    done = run("cluster", "check", *named, "--timeout", "5")
    assert done.code == 1
    assert done.lines[2].startswith("b\taway\t")
    assert any(line.startswith("ERROR: the server 'b' cannot be reached") for line in done.lines), done.out
    assert done.lines[-1] == "not healthy: 1 error; 2 servers, 1 table"
    cluster.members["b"].start()
    assert run("cluster", "check", *named).code == 0


def test_balance_prints_a_plan_and_then_makes_it(run: Run, cluster: Cluster, named: list[str], tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    before.write_text(run("cluster", "check", *named, "--checksums", "--json").out)
    dry = run("cluster", "balance", *named)
    assert dry.code == 0, dry.err
    assert dry.lines[1].split("\t")[:4] == ["a", "50.0%", "4", "2"]
    assert dry.lines[2].split("\t")[:4] == ["b", "50.0%", "0", "2"]
    assert dry.lines[-1].startswith("2 moves, ") and dry.lines[-1].endswith("; --apply makes them")
    assert len(run("cluster", "balance", *named, "--json").json["moves"]) == 2, "nothing was moved"
    done = run("cluster", "balance", *named, "--apply")
    assert done.code == 0, done.err
    assert done.lines[-1] == "made 2 of 2 moves"
    again = run("cluster", "balance", *named, "--apply")
    assert again.code == 0 and again.lines[-1] == "balanced: no move is worth it"
    servers = [place.server for place in cluster.connect().table("t").tablets()]
    assert sorted(map(str, servers)) == ["a", "a", "b", "b"]
    checked = run("cluster", "check", *named, "--compare", before)
    assert checked.code == 0, checked.out
    cluster.connect().table("t").upsert({"id": [1], "n": [-1]})
    assert run("cluster", "check", *named, "--compare", before).code == 0, "the snapshot is that of the first check"


def test_rows_that_differ_fail_the_check(run: Run, named: list[str], tmp_path: Path) -> None:
    found = run("cluster", "check", *named, "--checksums", "--json").json
    found["checksums"][0]["checksum"] = "0" * 16
    earlier = tmp_path / "earlier.json"
    earlier.write_text(json.dumps(found))
    done = run("cluster", "check", *named, "--compare", earlier)
    assert done.code == 1 and "ERROR: table 't' differs as of" in done.out


def test_moves_by_what_is_asked_for(run: Run, named: list[str]) -> None:
    found = run("cluster", "balance", *named, "--by", "bytes", "--max-moves", "1", "--json").json
    assert len(found["moves"]) == 1 and not found["applied"]
    assert run("cluster", "balance", *named, "--margin", "3", "--json").json["moves"] == []
    assert run("cluster", "balance", *named, "--tables", "t", "--json").json["moves"]


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (["balance", "--by", "luck"], 3, "unknown measure 'luck'; known: tables, bytes"),
        (["balance", "--by", ","], 3, "by must name at least one measure"),
        (["balance", "--tables", "v"], 4, "no table 'v'"),
        (["check", "--compare", "/dev/null"], 3, "is not the output of nyala cluster check"),
    ],
)
def test_what_is_refused(run: Run, cluster: Cluster, flags: list[str], code: int, said: str) -> None:
    done = run("cluster", *flags, "--url", cluster.members["a"].location)
    assert done.code == code and said in done.err


def test_the_servers_are_named_once(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    path.write_text(cluster.placement.model_dump_json())
    done = run("cluster", "check", "--placement", path, "--url", cluster.members["a"].location)
    assert done.code == 3 and "give --url or --placement, not both" in done.err


def test_a_single_server(run: Run, url: str) -> None:
    assert run("cluster", "check", "--url", url, "--checksums").code == 0
    done = run("cluster", "balance", "--url", url)
    assert done.code == 3 and "nothing to balance" in done.err
