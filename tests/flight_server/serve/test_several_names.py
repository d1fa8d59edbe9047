"""Several stores of a bucket on one machine: what each process is told, and what becomes of them together."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nyala.engine.options import StoreOptions
from nyala.flight_server.processes import child_process
from nyala.flight_server.runtime.location import counted_up
from nyala.flight_server.serve import several_names
from nyala.flight_server.serve.several_names import NamedProcesses, options_by_name
from nyala.flight_server.settings.settings import Settings, read_settings
from nyala.schemas.errors import InvalidArgumentError
from tests.doubles.waiting import until

BUCKET = "memory://several-names"


def settings_of(*assignments: str, **flags: Any) -> Settings:
    return read_settings({"data": BUCKET, "name": "b,a,c", **flags}, assignments, {}, None)


def test_each_process_has_addresses_files_and_memory_of_its_own(tmp_path: Path) -> None:
    flags = {"listen": "grpc://0.0.0.0:9000", "http_port": 8000, "tokens": tmp_path / "tokens", "json_output": True}
    own = {"advertise": "grpc://m1:1,grpc://m1:5,grpc://m1:9", "audit_log": tmp_path / "audit.log"}
    found = options_by_name(settings_of(f"bucket_cache={tmp_path}", "lease_seconds=2", "memory_mb=300", **flags, **own))
    assert list(found) == ["b", "a", "c"]
    for at, (name, options) in enumerate(found.items()):
        told = read_settings(options, (), {}, None)
        assert (told.serve.name, told.serve.data, told.serve.prefer) == (name, BUCKET, at == 0)
        assert (told.serve.listen, told.serve.http_port) == (f"grpc://0.0.0.0:{9000 + at}", 8000 + at)
        assert told.server.advertise == (("grpc://m1:1", "grpc://m1:5", "grpc://m1:9")[at],)
        assert told.serve.audit_log == tmp_path / f"audit-{name}.log"
        assert told.serve.tokens == tmp_path / "tokens" and told.serve.json_output
        store = StoreOptions(**told.store)
        assert (store.bucket_cache, store.lease_seconds) == (str(tmp_path / name), 2.0)
        assert store.bucket_cache_bytes == StoreOptions().bucket_cache_bytes // 3
        assert store.memory_bytes == StoreOptions(budget_bytes=300 << 20).memory_bytes // 3
        assert told.server.drain_seconds == 9.0, "the parent's time is longer"


def test_a_machine_may_prefer_no_store() -> None:
    found = options_by_name(settings_of("prefer=false"))
    assert not any(options["prefer"] for options in found.values())
    assert [options["listen"] for options in found.values()] == [f"grpc://127.0.0.1:{8815 + at}" for at in range(3)]


def test_the_placement_says_where_they_listen(tmp_path: Path) -> None:
    found = options_by_name(settings_of(placement=tmp_path / "servers.toml"))
    assert not any("listen" in options for options in found.values())


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"data": Path("data")}, "give --data s3://"),
        ({"name": "a,b,a"}, "twice"),
        ({"processes": 2}, "--processes"),
        ({"standby": False}, "--no-standby"),
        ({"listen": "grpc://m1:1,grpc://m1:2"}, "--listen once for each --name"),
        ({"listen": "grpc+unix:///run/nyala.sock"}, "ports cannot be counted up from grpc"),
        ({"listen": "grpc://m1:65534"}, "ports cannot be counted up from grpc://m1:65534"),
    ],
)
def test_what_does_not_go_with_several_names_is_refused(flags: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        options_by_name(settings_of(**flags))


def test_ports_are_counted_up_from_the_only_address() -> None:
    assert counted_up(["grpc://[::]:0"], 2, "--listen") == ["grpc://[::]:0"] * 2
    assert counted_up(["grpc+tls://m1:65534"], 2, "--listen") == ["grpc+tls://m1:65534", "grpc+tls://m1:65535"]
    assert counted_up(["grpc+unix:///a", "grpc://m1:1"], 2, "--listen") == ["grpc+unix:///a", "grpc://m1:1"]


CHILD = """
import json, os, signal, sys, time
name = json.loads(sys.stdin.readline())["name"]
mark = sys.argv[1] + "/" + name
began = open(mark, "a")
began.write(str(os.getpid()) + chr(10))
began.flush()
if os.path.exists(mark + ".code"):
    sys.exit(int(open(mark + ".code").read()))
signal.signal(signal.SIGTERM, lambda *_: (open(mark + ".stopped", "a").write("x"), time.sleep(0.2), sys.exit(0)))
print("ready", flush=True)
sys.stdin.read()
"""


class Machine:
    """The processes b, a and c, which do nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        settings = settings_of()
        self.processes = NamedProcesses(settings, options_by_name(settings))

    def pids(self, name: str) -> list[int]:
        mark = self._folder / name
        return [int(line) for line in mark.read_text().splitlines()] if mark.exists() else []

    def fails(self, name: str, code: int | None) -> None:
        mark = self._folder / f"{name}.code"
        mark.unlink() if code is None else mark.write_text(str(code))

    def stops(self, name: str) -> str:
        return (self._folder / f"{name}.stopped").read_text()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(child_process, "_COMMAND", (sys.executable, "-c", CHILD, str(tmp_path)))
    monkeypatch.setattr(child_process, "_PAUSES", (0.01, 0.02))
    made = Machine(tmp_path)
    yield made
    made.processes.stop()


def test_one_that_dies_is_started_again_and_the_others_do_not_notice(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.processes.start()
    assert capsys.readouterr().out.splitlines()[0] == "b: ready", "the one that it is to have is the first"
    os.kill(machine.pids("a")[-1], signal.SIGKILL)
    until(lambda: len(machine.pids("a")) == 2)
    until(lambda: "a: ready" in capsys.readouterr().out)
    assert (len(machine.pids("b")), len(machine.pids("c"))) == (1, 1)
    machine.processes.stop()
    assert [machine.stops(name) for name in "bac"] == ["x"] * 3, "each was asked once"


def test_one_that_cannot_start_yet_keeps_nothing_from_the_others(machine: Machine) -> None:
    machine.fails("b", 9)
    machine.processes.start()
    assert len(machine.pids("a")) == len(machine.pids("c")) == 1
    until(lambda: len(machine.pids("b")) > 4)  # however often
    machine.fails("b", None)
    machine.processes.stop()
    assert machine.processes.failure == ""


def test_wrong_options_end_all(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    machine.fails("a", 3)
    with monkeypatch.context() as patched:
        patched.setattr(several_names.os, "kill", lambda _, number: sent.append(number))
        machine.processes.start()
    assert sent == [signal.SIGTERM] and "the process a cannot start" in machine.processes.failure
    assert len(machine.pids("a")) == 1
