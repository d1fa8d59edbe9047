"""Two machines and two stores of a bucket: each machine has one and stands by for the other, and either may be lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import nyala
from nyala.clients.flight.store import FlightStore
from nyala.engine.home.opening import home_at
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.flight_server.commands.server_commands import app
from nyala.schemas.errors import UnavailableError
from nyala.schemas.store.whereabouts import Whereabouts
from tests.doubles.waiting import until

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
LEASE_SECONDS = 3.0


class Machine:
    """``nyala serve`` with two names: a parent and a process for each."""

    def __init__(self, folder: Path, number: int, names: str, placement: Path, ports: dict[str, int]) -> None:
        self._names = names
        options = [f"--data=file://{folder / 'bucket'}", f"--placement={placement}", "--json", "--maintenance=off"]
        options += [f"--set=lease_seconds={LEASE_SECONDS}", f"--set=bucket_cache={folder / f'cache{number}'}"]
        for name in names:
            options += [f"--name={name}", f"--listen=grpc://127.0.0.1:{ports[name]}"]
        self._log = (folder / f"machine{number}.log").open("a")
        self.parent = subprocess.Popen(
            [sys.executable, "-m", "nyala.flight_server", *options],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.told: dict[str, dict[str, str]] = {}

    def is_ready(self) -> None:
        assert self.parent.stdout
        while len(self.told) < len(self._names):
            line = json.loads(self.parent.stdout.readline())
            self.told[line["name"]] = line

    def where(self, name: str) -> Whereabouts:
        with closing(FlightStore(self.told[name]["location"], retries=False)) as process:
            return process.whereabouts()

    def becomes(self, name: str, state: str) -> None:
        def is_so() -> bool:
            with suppress(UnavailableError):
                found = self.where(name)
                return found.state == state and found.holder is not None
            return False

        until(is_so, 60)

    @property
    def pids(self) -> list[int]:
        return [int(told["pid"]) for told in self.told.values()]

    def is_lost(self) -> None:
        for pid in (self.parent.pid, *self.pids):
            os.kill(pid, signal.SIGKILL)
        self.end()

    def end(self) -> None:
        with self.parent:
            self.parent.kill()
        self._log.close()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


Start = Callable[[int, str], Machine]


@pytest.fixture
def placement(tmp_path: Path) -> Path:
    with ExitStack() as bound:
        sockets = [bound.enter_context(closing(socket.socket())) for _ in range(4)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        urls = [f"grpc://127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    path = tmp_path / "servers.json"
    path.write_text(json.dumps({"servers": {"a": urls[:2], "b": urls[2:]}}))
    return path


@pytest.fixture
def start(tmp_path: Path, placement: Path) -> Iterator[Start]:
    running: list[Machine] = []
    servers = json.loads(placement.read_text())["servers"]

    def run(number: int, names: str) -> Machine:
        ports = {name: int(urls[number].rpartition(":")[2]) for name, urls in servers.items()}
        running.append(Machine(tmp_path, number, names, placement, ports))
        return running[-1]

    yield run
    for one in running:
        one.end()
        for pid in one.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def rows(first: int, count: int) -> pa.Table:
    keys = np.arange(first, first + count)
    return pa.table({"id": keys, "v": keys * 3}, schema=SCHEMA)


def test_tables_over_two_names_outlive_each_machine(start: Start, placement: Path, tmp_path: Path) -> None:
    one, two = start(0, "ab"), start(1, "ba")
    one.is_ready()
    two.is_ready()
    for machine, own, other in ((one, "a", "b"), (two, "b", "a")):
        machine.becomes(own, "holder")
        machine.becomes(other, "standby")
    db = nyala.connect(placement=placement)
    table = db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=4)])
    assert {each.server for each in db._store.tablets("t").tablets} == {"a", "b"}
    table.insert(rows(0, 1000))

    one.is_lost()
    lost = time.monotonic()
    table.insert(rows(1000, 1000))  # waits for the other machine
    assert time.monotonic() - lost < 60, "a machine may be slow"
    two.becomes("a", "holder")
    two.becomes("b", "holder")
    assert table.count() == 2000

    one = start(0, "ab")
    one.is_ready()
    one.becomes("a", "standby")
    one.becomes("b", "standby")
    status = CliRunner().invoke(app, ["status", "--placement", str(placement), "--json"])
    assert status.exit_code == 0, status.output
    assert sorted(told["state"] for told in json.loads(status.output).values()) == ["holder"] * 2 + ["standby"] * 2
    released = CliRunner().invoke(app, ["release", "a", "--placement", str(placement)])
    assert "released the store a" in released.output, released.output
    one.becomes("a", "holder")
    table.upsert(rows(1500, 1000))

    one.parent.kill()  # its processes release what they have, and end
    until(lambda: not any(is_running(pid) for pid in one.pids), 15)
    two.becomes("a", "holder")
    with nyala.connect(placement=placement) as other:
        found = other.table("t").scan().to_arrow().sort_by("id")
    assert found.equals(rows(0, 2500))
    db.close()
    began = time.monotonic()
    two.parent.terminate()
    assert two.parent.wait(30) == 0 and time.monotonic() - began < 10.5
    for name in "ab":
        assert verify_bucket(home_at(f"file://{tmp_path / 'bucket'}", name)).is_sound
