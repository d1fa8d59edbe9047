"""``nyala perf loadgen`` and ``nyala top``: what they print of a server that is used, and what they leave behind."""

from __future__ import annotations

import json
import threading
from time import sleep

import pyarrow as pa
import pytest

import nyala
from nyala.clients.cli.activity import activity
from nyala.clients.cli.loadgen import OPERATIONS
from nyala.schemas.store.metrics import MetricFamily, Metrics, Sample
from tests.clients.cli.command import Run

SCHEMA = pa.schema([pa.field("id", pa.int64(), False)])
FAST = ("--seconds", "0.5", "--rows", "2000", "--batch-rows", "50")


def test_every_operation_is_measured(run: Run, url: str) -> None:
    done = run("perf", "loadgen", "--url", url, "--mix", ",".join(OPERATIONS), "--clients", 3, *FAST, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found.keys() == OPERATIONS.keys()
    for name, each in found.items():
        assert each["count"] > 0 and each["errors"] == {}, name
        assert 0 < each["p50_ms"] <= each["p95_ms"] <= each["p99_ms"] <= each["p999_ms"] <= each["max_ms"]
        assert each["per_second"] == each["count"] / 0.5
    assert found["batch"]["rows_per_second"] == 50 * found["batch"]["per_second"]
    assert found["get"]["rows_per_second"] == found["get"]["per_second"]
    with nyala.connect(url) as db:
        assert db.list_tables() == []


def test_weights_processes_and_the_table_that_is_printed(run: Run, url: str) -> None:
    mix = "--mix", "get=9, upsert"
    done = run("perf", "loadgen", "--url", url, *mix, "--clients", 3, "--processes", 2, *FAST)
    assert done.code == 0, done.err
    titles, *lines = [line.split("\t") for line in done.out.splitlines()]
    counts = {line[0]: int(line[1].replace(",", "")) for line in lines}
    assert titles[:2] == ["operation", "count"] and counts.keys() == {"get", "upsert"}
    assert counts["get"] > 3 * counts["upsert"] > 0


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (["--mix", "fly"], 3, "unknown operation 'fly'"),
        (["--mix", "get=0"], 3, "operation=weight"),
        (["--mix", ","], 3, "names no operation"),
        (["--clients", "1", "--processes", "2"], 3, "each process needs at least one client"),
        (["--table", "mine"], 5, "table 'mine' already exists"),
    ],
)
def test_what_is_refused(run: Run, url: str, flags: list[str], code: int, said: str) -> None:
    assert run("create", "mine", "--schema", "id int64, primary key (id)", "--url", url).code == 0
    told = run("perf", "loadgen", "--url", url, *FAST, *flags)
    assert told.code == code and said in told.err
    with nyala.connect(url) as db:
        assert db.list_tables() == ["mine"], "the tables of others stay"


def test_errors_are_counted(run: Run, url: str) -> None:
    """The table goes away under the clients."""

    def drop() -> None:
        with nyala.connect(url) as db:
            while "t" not in db.list_tables() or db.commits("t").num_rows < 3:
                sleep(0.01)
            db.drop_table("t")

    dropper = threading.Thread(target=drop)
    dropper.start()
    done = run(
        "perf",
        "loadgen",
        "--url",
        url,
        "--table",
        "t",
        "--clients",
        1,
        "--mix",
        "upsert",
        "--rows",
        10,
        "--json",
        "--seconds",
        1,
    )
    dropper.join()
    found = json.loads(done.out)
    assert done.code == 0 and found["upsert"]["errors"]["NOT_FOUND"] > 0


def test_a_picture_of_a_busy_server(run: Run, url: str) -> None:
    stop = threading.Event()

    def work() -> None:
        with nyala.connect(url) as db:
            table = db.create_table("busy", SCHEMA, ["id"])
            number = 0
            while not stop.is_set():
                table.upsert([{"id": number}])
                table.get(number)
                number += 1

    worker = threading.Thread(target=work)
    worker.start()
    try:
        told = run("top", "--url", url, "--once", "--interval", "0.5")
        found = json.loads(run("top", "--url", url, "--json", "--interval", "0.5").out)
    finally:
        stop.set()
        worker.join()
    assert told.out.startswith("ok, version ")
    lines = [line.split("\t") for line in told.out.splitlines()]
    assert {"session_write", "session_get", "log syncs", "written rows", "free on disk", "busy"} <= {
        line[0] for line in lines
    }
    by_verb = {each["name"]: each for each in found["requests"]}
    assert by_verb["session_write"]["per_second"] > 1 and by_verb["session_write"]["mean_ms"] > 0
    assert found["rates"]["written rows"] > 1 and found["status"] == "ok"
    assert found["tables"][0]["table"] == "busy" and found["tables"][0]["rows"] > 0


def _metrics(total: float, *counts: int, process: str = "p0") -> Metrics:
    sample = Sample(labels={"verb": "do_get", "process": process}, value=total, counts=list(counts))
    return Metrics(
        families=[
            MetricFamily(name="nyala_request_seconds", kind="histogram", about="", samples=[sample], bounds=[1.0, 2.0])
        ]
    )


def test_rates_are_those_between_two_looks() -> None:
    (found,) = activity(_metrics(10.0, 5, 5, 0), _metrics(22.0, 9, 9, 0), 4.0)["requests"]
    assert (found["name"], found["per_second"], found["mean_ms"]) == ("do_get", 2.0, 1500.0)
    assert found["p99_ms"] == pytest.approx(1000 * (1 + (0.99 * 8 - 4) / 4))
    (restarted,) = activity(_metrics(10.0, 5, 5, 0), _metrics(1.0, 2, 0, 0), 4.0)["requests"]
    assert (restarted["per_second"], restarted["mean_ms"]) == (0.5, 500.0)
    assert activity(_metrics(10.0, 5, 5, 0), _metrics(10.0, 5, 5, 0), 1.0)["requests"] == []
