"""A server process starts, drains and stops; killed clients leave nothing behind."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.engine.kernels.compile import warmup
from nyala.flight_server.runtime.opening import open_warm
from nyala.flight_server.runtime.stop_signals import StopSignals
from nyala.flight_server.serve import start as starting
from nyala.flight_server.settings.settings import read_settings
from tests.doubles.waiting import until
from tests.flight_server.served import Served, code_of

SCHEMA_OF_KEY = pa.schema([pa.field("id", pa.int64(), nullable=False)])
SERVE_FAKE = [sys.executable, str(Path(__file__).parents[1] / "serve_fake.py")]


class Process:
    """A server process; its first line of output is where it listens."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.first_line = self.process.stdout.readline().strip()

    def client(self) -> fl.FlightClient:
        return fl.connect(self.first_line)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, float]:
        """Send a signal; return the exit code, the rest of the output and the seconds that it took."""
        started = time.monotonic()
        self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=20)
        return self.process.returncode, out, time.monotonic() - started


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    running: list[Process] = []

    def run(*command: str) -> Process:
        running.append(Process(list(command)))
        return running[-1]

    yield run
    for one in running:
        one.process.kill()
        one.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_idle_server_stops_at_once(start: Callable[..., Process], number: signal.Signals) -> None:
    server = start(*SERVE_FAKE, "10")
    client = server.client()
    list(client.do_action("health"))
    code, out, seconds = server.stop(number)
    assert (code, out) == (0, "closed\n")
    assert seconds < 5


@pytest.mark.parametrize("form", ["a file", "a name"])
def test_the_service_manager_is_told(
    start: Callable[..., Process], form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = str(tmp_path / "notify") if form == "a file" else f"@{tmp_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(20)
        manager.bind(name.replace("@", "\0"))
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        server = start(*SERVE_FAKE, "10")
        assert manager.recv(100) == b"READY=1" and server.first_line
        server.process.send_signal(signal.SIGTERM)
        assert manager.recv(100) == b"STOPPING=1"
        assert server.process.wait(20) == 0


def test_running_scan_ends_and_nothing_new_comes_in(start: Callable[..., Process]) -> None:
    server = start(*SERVE_FAKE, "10")
    client = server.client()
    reader = client.do_get(fl.Ticket(b'{"table":"slow"}'))
    reader.read_chunk()
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    with pytest.raises(fl.FlightUnavailableError) as caught:
        list(client.do_action("health"))
    assert code_of(caught.value) == "UNAVAILABLE"
    assert 1000 + sum(chunk.data.num_rows for chunk in reader) == 10_000
    out, _ = server.process.communicate(timeout=20)
    assert (server.process.returncode, out) == (0, "closed\n")


def test_stalled_reader_does_not_hold_the_stop(start: Callable[..., Process]) -> None:
    server = start(*SERVE_FAKE, "0.3")
    reader = server.client().do_get(fl.Ticket(b'{"table":"endless"}'))
    reader.read_chunk()
    code, out, seconds = server.stop()
    assert (code, out) == (0, "closed\n")
    assert seconds < 15


def test_busy_reader_is_told_when_the_time_is_over(start: Callable[..., Process]) -> None:
    server = start(*SERVE_FAKE, "0.3")
    reader = server.client().do_get(fl.Ticket(b'{"table":"endless"}'))
    errors: list[BaseException] = []

    def read() -> None:
        try:
            for _ in reader:
                pass
        except fl.FlightError as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    time.sleep(0.2)
    code, _, seconds = server.stop()
    thread.join(10)
    assert code == 0 and seconds < 15
    assert isinstance(errors[0], fl.FlightUnavailableError)


def test_idle_writer_does_not_hold_the_stop(start: Callable[..., Process]) -> None:
    server = start(*SERVE_FAKE, "0.3")
    writer, _ = server.client().do_put(fl.FlightDescriptor.for_path("homes"), SCHEMA_OF_KEY)
    time.sleep(0.2)
    code, out, seconds = server.stop()
    assert (code, out) == (0, "closed\n")
    assert seconds < 15
    with pytest.raises(fl.FlightError):
        writer.close()


SLOW_OPENING = """
import time
from nyala.flight_server.settings.config import ServerConfig
from nyala.flight_server.serve.lifecycle import run_server

def open_store():
    print("opening", flush=True)
    time.sleep(60)

run_server(open_store, "grpc://127.0.0.1:0", ServerConfig(), print, exit_code=lambda: CODE)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 7)])
def test_a_signal_ends_an_opening_at_once(start: Callable[..., Process], number: signal.Signals, code: int) -> None:
    """It may compile kernels, or replay a long log, for minutes."""
    server = start(sys.executable, "-c", SLOW_OPENING.replace("CODE", str(code)))
    assert server.first_line == "opening"
    assert server.stop(number)[:2] == (code, "")


def test_a_store_in_other_hands_is_told_before_anything_is_compiled(
    start: Callable[..., Process], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start(*serve_command("--data", str(tmp_path), "--listen", "grpc://127.0.0.1:0"))
    assert "listening" in server.first_line
    monkeypatch.setattr(warmup, "warm_up", lambda: pytest.fail("kernels are compiled first"))
    with pytest.raises(nyala.UnavailableError, match="another process has the store"):
        open_warm(tmp_path, {})
    assert server.stop()[0] == 0
    monkeypatch.setattr(warmup, "warm_up", lambda: 0)
    open_warm(tmp_path, {}).close()


def test_who_does_not_wait_for_a_store_is_told_how_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        raise nyala.UnavailableError("another process has the store", locations=["grpc://m1:8815"])

    monkeypatch.setattr(starting, "open_warm", refuse)
    flags = {"data": f"file://{tmp_path}", "name": "a", "standby": False, "listen": "grpc://127.0.0.1:0"}
    with pytest.raises(nyala.UnavailableError, match="the store, or leave --no-standby out to wait for it"):
        starting.serve_one(read_settings(flags, [], {}, None))


def test_second_signal_is_heard(start: Callable[..., Process]) -> None:
    server = start(*SERVE_FAKE, "60")
    reader = server.client().do_get(fl.Ticket(b'{"table":"endless"}'))
    reader.read_chunk()
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert server.process.poll() is None
    patience = time.monotonic() + 20  # signals that arrive together are one: send until one is the second
    while server.process.poll() is None and time.monotonic() < patience:
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
    assert server.process.poll() == 0


SIGNALLED_THREAD = """
import signal, threading, time
from nyala.flight_server.runtime.stop_signals import StopSignals

signals = StopSignals().install()

def signal_this_thread():
    time.sleep(0.2)  # the main thread sleeps by now
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

threading.Thread(target=signal_this_thread).start()
signals.wait()
print("heard")
"""


def test_signal_that_another_thread_gets_is_heard(start: Callable[..., Process]) -> None:
    """The system may choose any thread; a sleeping main thread is not woken by it."""
    server = start(sys.executable, "-c", SIGNALLED_THREAD)
    assert server.first_line == "heard"


KILLED_WRITER = """
import sys, pyarrow as pa, pyarrow.flight as fl
client = fl.connect(sys.argv[1])
schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
writer, reader = client.do_put(fl.FlightDescriptor.for_path("homes"), schema)
for n in range(3):
    writer.write_with_metadata(pa.record_batch([pa.array(range(n * 100, n * 100 + 100))], schema=schema), b'{"seq":1}')
    reader.read()
print("sent", flush=True)
for n in range(3, 10**9):
    writer.write_batch(pa.record_batch([pa.array(range(n * 100, n * 100 + 100))], schema=schema))
"""


def test_killed_writer_leaves_whole_batches_only(served: Served) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_WRITER, served.url], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout and writer.stdout.readline() == "sent\n"
        time.sleep(0.1)
        writer.send_signal(signal.SIGKILL)
    until(lambda: not served.server.admission.running)
    ids = served.ids()
    assert len(ids) >= 300 and len(ids) % 100 == 0
    assert ids == list(range(len(ids)))


def serve_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "nyala", "serve", *arguments]


def test_the_command_serves_and_stops_cleanly(start: Callable[..., Process], tmp_path: Path) -> None:
    server = start(*serve_command("--data", str(tmp_path), "--listen", "grpc://127.0.0.1:0", "--json"))
    about = json.loads(server.first_line)
    assert about["pid"] == server.process.pid
    client = fl.connect(about["location"])
    (answer,) = client.do_action("health")
    assert json.loads(answer.body.to_pybytes())["status"] == "ok"
    second = subprocess.run(
        serve_command("--data", str(tmp_path), "--listen", "grpc://127.0.0.1:0"), capture_output=True, text=True
    )
    assert second.returncode == 9 and second.stderr.startswith("UNAVAILABLE: ")
    port_taken = subprocess.run(
        serve_command("--data", str(tmp_path / "other"), "--listen", about["location"]), capture_output=True, text=True
    )
    assert port_taken.returncode == 9 and "UNAVAILABLE: cannot listen" in port_taken.stderr
    assert server.stop()[0] == 0


def test_a_server_does_not_start_that_would_name_no_location(tmp_path: Path) -> None:
    told = subprocess.run(
        serve_command("--data", str(tmp_path), "--listen", "grpc://127.0.0.1:0", "--advertise", "m1:8815"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert told.returncode == 3 and told.stderr.startswith("INVALID_ARGUMENT: ") and "'m1:8815'" in told.stderr


FAILING_HANGUP = """
import os, signal
from nyala.flight_server.runtime.stop_signals import StopSignals

signal.alarm(10)  # ends this process if it hears nothing
signals = StopSignals().install()
signals.on_hangup(lambda: 1 / 0)
os.kill(os.getpid(), signal.SIGHUP)
os.kill(os.getpid(), signal.SIGTERM)
signals.wait()
print("heard")
"""


def test_a_failure_at_sighup_leaves_sigterm_heard(start: Callable[..., Process]) -> None:
    server = start(sys.executable, "-c", FAILING_HANGUP)
    assert server.first_line == "heard"


def test_second_signal_is_heard_however_early() -> None:
    signals = StopSignals()
    hurried: list[bool] = []
    signals._received()
    signals._received()
    signals.on_second(lambda: hurried.append(True))
    assert hurried == [True]


ARENAS = """
import ctypes, threading
from nyala.flight_server.serve.lifecycle import share_arenas
if {shared}:
    share_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
together = threading.Barrier(40)
def work():
    libc.free(libc.malloc(1000))
    together.wait()
threads = [threading.Thread(target=work) for _ in range(40)]
for each in threads: each.start()
for each in threads: each.join()
libc.fdopen.restype = ctypes.c_void_p
libc.malloc_info(0, ctypes.c_void_p(libc.fdopen(1, b"w")))
libc.fflush(None)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="not the GNU C library")
@pytest.mark.parametrize("shared", [True, False])
def test_threads_share_arenas_of_malloc(shared: bool) -> None:
    code = ARENAS.format(shared=shared)
    told = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert (told.count("<heap nr=") <= max(len(os.sched_getaffinity(0)), 1) + 1) == shared
