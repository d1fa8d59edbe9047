"""Nested columns and long cells by clients in C++ and Node: they write them, read them, and change no cell."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import count
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO, Any, cast

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from nyala.clients.api.database import Database
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer
from tests.campaigns.nested.campaign import same_cells
from tests.campaigns.nested.drawn import Drawn, tables
from tests.campaigns.nested.ways import rows_of
from tests.clients import test_nested_columns as nested
from tests.clients.test_long_cells import JSON, MOST, SCHEMA, USUAL, row
from tests.dose import dose

EXAMPLES = Path(__file__).parents[3] / "examples/other_languages"
HERE = Path(__file__).parent


class Client:
    """A program in another language, which copies tables of a store."""

    def __init__(self, language: str, command: list[str], folder: Path, db: Database) -> None:
        self.language = language
        self.db = db
        self._process = Popen(command, cwd=folder, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)

    def does(self, task: str) -> list[str]:
        """Let it do a task; return what it prints."""
        to, back = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
        to.write(task + "\n")
        to.flush()
        lines: list[str] = []
        while (line := back.readline()) not in ("ready\n", ""):
            lines.append(line)
        assert line, cast(IO[str], self._process.stderr).read()
        return lines

    def copied(self, rows: pa.Table, name: str, **options: Any) -> pa.Table:
        """Return the rows of a table to which it has copied rows."""
        self.db.create_table(name, rows.schema, "k", **options).insert(rows)
        self.db.create_table(f"{name}_copy", rows.schema, "k", **options)
        self.does(f"copy {name} {name}_copy")
        return rows_of(self.db.table(f"{name}_copy"))

    def end(self) -> None:
        """Let it end."""
        _, errors = self._process.communicate(timeout=60)
        assert self._process.returncode == 0, errors


def _ran(*command: str | Path, folder: Path) -> None:
    result = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr


def _program(name: str, end: str, folder: Path) -> None:
    """Write the functions of an example, followed by the tasks of this test."""
    functions, _ = (EXAMPLES / f"client.{name}").read_text().split(end)
    (folder / f"copies.{name}").write_text(functions + (HERE / f"copies.{name}").read_text())


def compiled(folder: Path) -> list[str]:
    """Return the command of the client in C++."""
    if shutil.which("g++") is None:
        pytest.skip("there is no compiler of C++")
    _program("cpp", "\narrow::Status Run(", folder)
    (home,) = {Path(directory) for directory in pa.get_library_dirs() if list(Path(directory).glob("libarrow.so.*"))}
    libraries = [f"-l:{next(home.glob(f'{name}.so.*')).name}" for name in ("libarrow_flight", "libarrow")]
    source = ["-std=c++20", "copies.cpp", f"-I{pa.get_include()}", f"-L{home}", f"-Wl,-rpath,{home}"]
    _ran("g++", *source, *libraries, "-o", "copies", folder=folder)
    return [str(folder / "copies")]


def installed(folder: Path) -> list[str]:
    """Return the command of the client in Node."""
    if shutil.which("npm") is None:
        pytest.skip("there is no Node")
    try:
        needed = ("@grpc/grpc-js", "protobufjs", "apache-arrow")
        _ran("npm", "install", "--no-audit", "--no-fund", "--prefix", folder, *needed, folder=folder)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"the packages of Node could not be installed: {error}")
    _program("mjs", "\nconst client = ", folder)
    return ["node", "copies.mjs"]


@contextmanager
def running(language: str, command: list[str], folder: Path) -> Iterator[Client]:
    """Let a client run against a server of this process."""
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        server = FlightServer(store, "grpc://127.0.0.1:0")
        client = Client(language, [*command, f"grpc://127.0.0.1:{server.port}"], folder, Database(store))
        try:
            yield client
        finally:
            try:
                client.end()
            finally:
                server.shutdown()


@pytest.fixture(scope="module", params=["cpp", "node"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("client")
    command = compiled(folder) if request.param == "cpp" else installed(folder)
    with running(request.param, command, folder) as started:
        yield started


def test_rows_that_it_makes_are_those_that_python_reads(client: Client) -> None:
    """Those in C++ have a price, which Node cannot make of a number."""
    table = client.db.create_table("made", nested.SCHEMA, "k")
    printed = client.does("build made")
    expected = [dict(each) for each in nested.ROWS]
    if client.language == "node":
        assert json.loads(printed[0]) == [
            {**each, "labels": each["labels"] and dict(each["labels"])} for each in expected[:1]
        ] + [{**expected[1], "labels": {}}, expected[2]]
    else:
        expected[0]["lines"] = [{"item": 65_535, "price": Decimal("-1.50")}, None]
    assert rows_of(table).to_pylist() == expected


@pytest.mark.timeout(3600)
def test_drawn_cells_come_as_they_were(client: Client) -> None:
    numbers = count()

    @seed(dose(1, 2))
    @settings(
        max_examples=dose(8, 150),
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(drawn=tables())
    def copies(drawn: Drawn) -> None:
        number = next(numbers)
        same_cells("a copy", client.copied(drawn.rows, f"t{number}"), drawn.rows)
        client.db.table(f"t{number}").maintain("flush")
        client.does(f"copy t{number} t{number}_copy")
        same_cells("a copy from files", rows_of(client.db.table(f"t{number}_copy")), drawn.rows)

    copies()
    assert next(numbers) >= dose(8, 150)


@pytest.mark.parametrize("size", [3 * USUAL, MOST])
def test_long_cells_come_as_they_were(client: Client, size: int) -> None:
    rows = pa.Table.from_pylist([row(1, size), row(2, 10), row(3, size - 1)], SCHEMA)
    found = client.copied(rows, f"long{size}", column_options=JSON, cell_bytes_max=MOST)
    assert found.to_pylist() == rows.to_pylist()
