"""The clients in C++ and Node that docs/flight.md goes through, compiled and run against a server."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from nyala.schemas.rows.scan import ScanSpec

EXAMPLES = Path(__file__).parents[2] / "examples/other_languages"
ERROR = "error: NOT_FOUND: there is no table 'no_such_table'"


def ran(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def against_a_server(cwd: Path, *command: str | Path, scheme: str = "") -> str:
    """Run a client; return what it printed, once the store has its rows."""
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        server = FlightServer(store, "grpc://127.0.0.1:0")
        try:
            printed = ran(*command, f"{scheme}127.0.0.1:{server.port}", cwd=cwd)
        finally:
            server.shutdown()
        (table,) = store.tables()
        rows = store.scan(ScanSpec(table=table, ordered=True)).to_reader().read_all()
    assert rows.to_pydict() == {"id": [1, 2, 3], "city": ["Oslo", "Bergen", "Oslo"], "price": [5.1, 3.9, 4.4]}
    return printed


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no compiler of C++")
def test_client_in_cpp(tmp_path: Path) -> None:
    (home,) = {Path(directory) for directory in pa.get_library_dirs() if list(Path(directory).glob("libarrow.so.*"))}
    libraries = [f"-l:{next(home.glob(f'{name}.so.*')).name}" for name in ("libarrow_flight", "libarrow")]
    source = ["-std=c++20", EXAMPLES / "client.cpp", f"-I{pa.get_include()}", f"-L{home}", f"-Wl,-rpath,{home}"]
    ran("g++", *source, *libraries, "-o", "client", cwd=tmp_path)
    printed = against_a_server(tmp_path, tmp_path / "client", scheme="grpc://")
    assert '"applied":3' in printed and "2 rows" in printed and ERROR in printed


@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no Node")
def test_client_in_node(tmp_path: Path) -> None:
    needed = ("@grpc/grpc-js", "protobufjs", "apache-arrow")
    try:
        ran("npm", "install", "--no-audit", "--no-fund", "--prefix", tmp_path, *needed, cwd=tmp_path)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"the packages of Node could not be installed: {error}")
    shutil.copy(EXAMPLES / "client.mjs", tmp_path)
    printed = against_a_server(tmp_path, "node", "client.mjs")
    assert "written: 3 rows at 7" in printed and "2 rows: 1 Oslo 5.1, 3 Oslo 4.4" in printed and ERROR in printed
