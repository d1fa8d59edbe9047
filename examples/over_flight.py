"""Start a server, write through the Nyala client, read with nothing but Arrow Flight.

    python examples/over_flight.py

The last part is what a client in another language does: JSON in a ticket, Arrow out.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.flight as flight

import nyala


@contextmanager
def server(folder: str) -> Iterator[str]:
    """Run ``nyala serve`` on a free port; yield its address, and stop it cleanly at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"grpc://127.0.0.1:{port}"
    process = subprocess.Popen([sys.executable, "-m", "nyala", "serve", "--data", folder, "--listen", url])
    try:
        wait_until_open(port, process)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=30)


def wait_until_open(port: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 180  # the first start on a machine compiles kernels
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("the server did not start")


def main() -> None:
    schema = pa.schema({"id": pa.int64(), "city": pa.string()})
    with tempfile.TemporaryDirectory() as folder, server(folder) as url:
        with nyala.connect(url) as db:
            places = db.create_table("places", schema, primary_key=["id"])
            places.upsert(pa.table({"id": [1, 2, 3], "city": ["Oslo", "Bergen", "Hamar"]}, schema=schema))
            print(places.scan(where="city like '%a%'").to_arrow().to_pydict())

        client = flight.connect(url)
        ticket = flight.Ticket(json.dumps({"table": "places", "columns": ["city"], "ordered": True}).encode())
        cities = client.do_get(ticket).read_all()["city"].to_pylist()
        assert cities == ["Oslo", "Bergen", "Hamar"]
        print(cities)


if __name__ == "__main__":
    main()
