"""What gRPC calls for each server that it builds is there for as long as the process lives."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import ctypes, gc
from nyala.flight_server.native import server_builder
from nyala.flight_server.server import FlightServer
from tests.flight_server.fake_store import FakeStore

for _ in range(3):
    server = FlightServer(FakeStore(), "grpc://127.0.0.1:0")
    assert server.port
    server.shutdown()
    server_builder._grpc.cache_clear()
    gc.collect()
    others = [(ctypes.c_uint64 * 10)(*[1] * 10) for _ in range(10_000)]  # where the plugin would have been
print("all were built")
"""


def test_servers_are_built_after_the_plugin_was_forgotten() -> None:
    run = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=120)
    assert run.stdout == "all were built\n", (run.returncode, run.stderr)
