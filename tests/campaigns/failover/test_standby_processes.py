"""Processes that serve one store of a bucket: one has it, the others stand by, and nothing acknowledged is lost."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.bucket.opening import bucket_of
from nyala.engine.home.where import read_where
from nyala.schemas.errors import InvalidArgumentError, UnavailableError
from tests.campaigns.failover.name_process import LEASE_SECONDS, NameProcess, Start

METRICS = Path(__file__).parents[3] / "docs" / "metrics.md"


def nyala(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "nyala", *arguments], capture_output=True, text=True, check=True)


def put(process: NameProcess, *ids: int) -> None:
    with closing(process.store()) as store:
        database = Database(store)
        if "t" not in database.tables():
            database.create_table("t", pa.schema([("id", pa.int64())]), ["id"])
        database.table("t").upsert([{"id": each} for each in ids])


def ids(process: NameProcess) -> list[int]:
    with closing(process.store()) as store:
        return sorted(Database(store).table("t").scan().to_arrow()["id"].to_pylist())


def test_a_killed_holder_is_replaced_and_comes_back_as_a_standby(start: Start, tmp_path: Path) -> None:
    first = start()
    put(first, 1, 2)
    assert read_where(bucket_of(f"file://{tmp_path / 'bucket'}"), "a") is not None
    second = start("--http-port=0")
    second.becomes("standby")
    with urllib.request.urlopen(f"{second.told['http']}/readyz") as page:
        assert (page.status, json.load(page)) == (200, {"status": "standby"})
    assert ids(second) == [1, 2], "the client follows"
    with closing(second.itself()) as process:
        with pytest.raises(
            UnavailableError, match="this process is a standby of the store a; connect to grpc://"
        ) as refused:
            process.tables()
        assert refused.value.locations == [first.url]
        health = process.health()
        assert (health.status, health.name, health.state) == ("ok", "a", "standby")
    with urllib.request.urlopen(f"{second.told['http']}/metrics") as page:
        found = dict(re.findall(r"^# TYPE (nyala_failover_\w+) (\w+)$", page.read().decode(), re.MULTILINE))
    assert found == dict(re.findall(r"^\| `(nyala_failover_\w+)` \| (\w+) \|", METRICS.read_text(), re.MULTILINE))
    first.send(signal.SIGKILL)
    began = time.monotonic()
    second.becomes("holder")
    assert time.monotonic() - began < LEASE_SECONDS + 30, "a machine may be slow"
    assert ids(second) == [1, 2]
    put(second, 3)
    found = read_where(bucket_of(f"file://{tmp_path / 'bucket'}"), "a")
    assert found is not None and found.holder is not None and found.holder.locations == [second.url]
    third = start()
    third.becomes("standby")
    assert ids(second) == [1, 2, 3]


def test_a_holder_that_stood_still_becomes_a_standby(start: Start) -> None:
    first = start()
    put(first, 1)
    second = start()
    second.becomes("standby")
    first.send(signal.SIGSTOP)
    second.becomes("holder")
    put(second, 2)
    first.send(signal.SIGCONT)
    first.becomes("standby")
    put(first, 3)
    assert ids(second) == [1, 2, 3]
    second.send(signal.SIGKILL)
    first.becomes("holder")
    assert ids(first) == [1, 2, 3]


def test_a_stop_hands_the_store_over_at_once(start: Start) -> None:
    first = start("--set=lease_seconds=20")
    put(first, 1)
    second = start("--set=lease_seconds=20")
    second.becomes("standby")
    first.send(signal.SIGTERM)
    assert first.process.wait(60) == 0
    began = time.monotonic()
    second.becomes("holder")
    assert time.monotonic() - began < 20, "nobody waited for the lease"
    assert ids(second) == [1]


def test_a_store_is_released_and_taken_on_request(start: Start, tmp_path: Path) -> None:
    lease = "--set=lease_seconds=8"  # commands run meanwhile, and to take it from a process that lives takes as long
    first = start(lease)
    put(first, 1)
    second = start(lease)
    second.becomes("standby")
    both = f"{second.url},{first.url}"
    shown = nyala("server", "status", "--url", both, "--json")
    assert [told["state"] for told in json.loads(shown.stdout).values()] == ["standby", "holder"]
    assert first.url in nyala("server", "status", "--data", f"file://{tmp_path / 'bucket'}").stdout
    with closing(first.itself()) as process, pytest.raises(InvalidArgumentError, match="serves the store a"):
        process.server_release("b")
    assert "released the store a" in nyala("server", "release", "a", "--url", second.url).stdout
    second.becomes("holder")
    first.becomes("standby")
    put(second, 2)
    with closing(second.store()) as store:
        taken = store.now()
    assert f"{first.url} has the store a" in nyala("server", "take", "a", "--force", "--url", first.url).stdout
    assert ids(first) == [1, 2]
    with closing(first.store()) as store:
        assert store.now() > taken
    second.becomes("standby")


def test_a_server_that_shares_its_store_with_nobody_tells_its_name(start: Start) -> None:
    """A client of the store would take it for another one, and one that has the store again is none."""
    alone = start("--no-standby", "--advertise=grpc://m1:8815")
    found = alone.where()
    assert (found.name, found.state) == ("a", "holder")
    assert found.holder and found.holder.locations == ["grpc://m1:8815"]


def test_without_standby_a_store_that_another_has_is_refused(start: Start) -> None:
    put(start(), 1)
    refused = start("--no-standby")
    assert refused.process.wait(120) == 9
