"""Who waits for the network: seen by how often gRPC's own threads wake up for small messages."""

import os
import subprocess
import sys

import pytest

from tests.dose import dose

_ECHOES = """
import os
from pathlib import Path
import pyarrow as pa, pyarrow.flight as fl

def switches():
    threads = [each for each in Path("/proc/self/task").iterdir() if (each / "comm").read_text() == "event_engine\\n"]
    lines = [line for each in threads for line in (each / "status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary"))

class Echo(fl.FlightServerBase):
    def do_exchange(self, context, descriptor, reader, writer):
        writer.begin(pa.schema([]))
        for chunk in iter(reader.read_chunk, None):
            writer.write_metadata(chunk.app_metadata)

if {prepares}:
    from nyala.clients.flight import transport
    transport.prepare()
server = Echo("grpc://127.0.0.1:0")
with fl.connect(f"grpc://127.0.0.1:{{server.port}}") as client:
    writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(b""))
    writer.begin(pa.schema([]))
    def echo(times):
        for _ in range(times):
            writer.write_metadata(b"small")
            assert reader.read_chunk().app_metadata == b"small"
    echo(50)
    before = switches()
    echo(1_000)
    print(switches() - before, os.environ.get("GRPC_EXPERIMENTS"), flush=True)
os._exit(0)
"""


def _echo(prepares: bool = True, **environment: str) -> tuple[int, str]:
    """Return the voluntary switches of gRPC's threads in a thousand echoes, and what the environment says after."""
    command = [sys.executable, "-c", _ECHOES.format(prepares=prepares)]
    clean = {name: value for name, value in os.environ.items() if name != "GRPC_EXPERIMENTS"}
    found = subprocess.run(command, env=clean | environment, capture_output=True, text=True, check=True).stdout.split()
    return int(found[0]), found[1]


def test_no_thread_of_grpc_wakes_for_a_message_and_no_later_process_inherits_why() -> None:
    assert _echo(prepares=False)[0] > 2_000
    woken, left = _echo()
    assert woken < 1_000, "they have timers"
    assert left == "None"


def test_a_process_that_chooses_experiments_keeps_its_choice() -> None:
    woken, left = _echo(GRPC_EXPERIMENTS="event_engine_client")
    assert woken > 2_000
    assert left == "event_engine_client"


_FORKS = """
import os, sys
import nyala
from nyala.clients.flight import transport

def in_child():
    try:
        nyala.connect("grpc://127.0.0.1:1")
    except nyala.StoreError as error:
        return f"{error.code}: {error.message}"

def forked():
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.write(writing, in_child().encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(reading, 4096).decode()

print(forked())
transport.prepare()
print(forked())
"""


def test_a_process_forked_from_one_that_had_connected_is_told_what_to_do() -> None:
    found = subprocess.run([sys.executable, "-c", _FORKS], capture_output=True, text=True, check=True, timeout=120)
    before, after = found.stdout.splitlines()
    assert before.startswith("UNAVAILABLE: ") and "fork" not in before, "nobody had connected yet"
    assert after.startswith("INVALID_ARGUMENT: ") and "'spawn'" in after


_THREADS = """
import gc, os, time
from pathlib import Path
import pyarrow.flight as fl

class Echo(fl.FlightServerBase):
    def do_action(self, context, action):
        yield b"seen"

def threads():
    return [each for each in Path("/proc/self/task").iterdir() if "event_engine" in (each / "comm").read_text()]

if {prepares}:
    from nyala.clients.flight import transport
    transport.prepare()
server = Echo("grpc://127.0.0.1:0")
client = fl.connect(f"grpc://127.0.0.1:{{server.port}}")
assert len(list(client.do_action("any"))) == 1 and threads()
client.close()
server.shutdown()
del client, server
gc.collect()
end = time.monotonic() + {seconds}
while threads() and time.monotonic() < end:
    time.sleep(0.05)
print(bool(threads()))
"""


@pytest.mark.parametrize(("prepares", "seconds", "stays"), [(True, 1, "True"), (False, 30, "False")])
def test_grpc_stays_when_the_last_client_and_server_are_gone(prepares: bool, seconds: int, stays: str) -> None:
    code = _THREADS.format(prepares=prepares, seconds=seconds)
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == stays


_LARGE_MESSAGES = """
import gc, random, sys, threading, time
import pyarrow as pa, pyarrow.flight as fl

if {prepares}:
    from nyala.clients.flight import transport
    transport.prepare()
batch = pa.record_batch([[b"x" * (3 << 20)]], ["cell"])

class Large(fl.FlightServerBase):
    def do_get(self, context, ticket):
        return fl.RecordBatchStream(pa.Table.from_batches([batch] * random.randrange(1, 4)))

def read_slowly(url, end):
    while time.monotonic() < end:
        with fl.connect(url) as client:
            for chunk in client.do_get(fl.Ticket(b"")):
                time.sleep(random.random() * 0.02)
                assert chunk.data.num_rows == 1

end = time.monotonic() + {seconds}
while time.monotonic() < end:
    server = Large("grpc://127.0.0.1:0")
    arguments = f"grpc://127.0.0.1:{{server.port}}", time.monotonic() + 0.2
    threads = [threading.Thread(target=read_slowly, args=arguments) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.shutdown()
    del server
    gc.collect()
"""


def _come_and_go(prepares: bool, seconds: float) -> int:
    """Let servers of large messages and slow readers come and go in a process; return its code."""
    code = _LARGE_MESSAGES.format(prepares=prepares, seconds=seconds)
    older = {} if prepares else {"GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener"}
    scribbles = {"GLIBC_TUNABLES": "glibc.malloc.perturb=165"}  # freed memory does not look alive
    return subprocess.run([sys.executable, "-c", code], env=os.environ | older | scribbles).returncode


def test_large_messages_live_through_servers_that_come_and_go() -> None:
    assert _come_and_go(prepares=True, seconds=dose(2, 120)) == 0


@pytest.mark.night
def test_large_messages_would_crash_without() -> None:
    """If none of these processes crashes, gRPC was mended: then nothing has to be kept up."""
    assert any(_come_and_go(prepares=False, seconds=120) < 0 for _ in range(10))
