"""What goes wrong is said in one sentence that tells what to do, in this process and over Flight."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from socketserver import StreamRequestHandler, TCPServer
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.store import Store
from nyala.flight_server.runtime.location import check_free
from nyala.flight_server.server import FlightServer

LEVEL: Any = nyala.hash("id", buckets=2)


class _Lazy:
    def collect(self) -> None: ...


SAID: dict[str, tuple[Callable[[Database, Table], Any], str]] = {
    "a dict as where": (lambda db, t: t.scan(where={"city": "Oslo"}).to_arrow(), "city = 'Oslo'"),
    "ordered by a column": (lambda db, t: t.scan(ordered="city"), "order_by='city'"),  # pyright: ignore[reportArgumentType]
    "a limit with a fraction": (lambda db, t: t.scan(limit=5.5), "limit"),  # pyright: ignore[reportArgumentType]
    "a number as column": (lambda db, t: t.scan(columns=[1]), "columns"),  # pyright: ignore[reportArgumentType]
    "a table option": (
        lambda db, t: db.create_table("x", data={"id": [1]}, primary_key=["id"], histroy_max_age_seconds=5),  # pyright: ignore
        "did you mean 'history_max_age_seconds'",
    ),
    "a column option": (
        lambda db, t: db.create_table(
            "x", data={"id": [1]}, primary_key=["id"], column_options={"id": {"encodng": "x"}}
        ),
        "did you mean 'encoding'",
    ),
    "no column options": (
        lambda db, t: db.create_table("x", data={"id": [1]}, primary_key=["id"], column_options={"id": 5}),  # pyright: ignore[reportArgumentType]
        "ColumnOptions or a dict",
    ),
    "a type that is none": (lambda db, t: t.alter().add_column("a", 5), "'int64'"),  # pyright: ignore[reportArgumentType]
    "measures": (lambda db, t: t.scan().aggregate(["price"]), "a dict"),  # pyright: ignore[reportArgumentType]
    "set as text": (lambda db, t: t.update_where("price = 3"), "set must be a dict, as in {'price': 'price * 1.1'}"),  # pyright: ignore[reportArgumentType]
    "one condition": (lambda db, t: t.scan(where=("id", ">", 3)), "put it into a list, as in [('id', '>', 3)]"),  # pyright: ignore[reportArgumentType]
    "a float as moment": (lambda db, t: t.scan(as_of=1.5), "not a float"),  # pyright: ignore[reportArgumentType]
    "a word as moment": (lambda db, t: t.scan(as_of="yesterday"), "such as 2026-01-31T12:00:00Z"),
    "a moment without zone": (lambda db, t: t.scan(as_of="2020-01-01"), "as_of 2020-01-01T00:00:00 needs a time zone"),
    "text in double quotes": (lambda db, t: t.scan(where='city = "Oslo"').to_arrow(), "text needs single quotes"),
    "two columns of one name": (
        lambda db, t: db.create_table("x", data=pa.table([[1], [2]], names=["a", "a"]), primary_key=["a"]),
        "the data has more than one column named 'a'",
    ),
    "no columns": (lambda db, t: db.create_table("x", data={}, primary_key=["a"]), "it has none"),
    "a path as data": (lambda db, t: t.insert("homes.csv"), "load it with nyala.jobs.load, or with `nyala load"),
    "a row that is not in a list": (
        lambda db, t: t.insert({"id": 1, "name": "a"}),
        "a dict has a list of values for each column; put a single row into a list: [row]",
    ),
    "a frame yet to come": (lambda db, t: t.insert(_Lazy()), "pass the result of its collect()"),
    "too many digits": (
        lambda db, t: db.create_table("x", data={"id": [1], "d": [10**40]}, primary_key=["id"]),
        "column 'd' has integers of 41 digits, but a column holds at most 38: pass them as text",
    ),
    "a decimal too wide": (
        lambda db, t: db.create_table("x", pa.schema({"id": pa.int64(), "d": pa.decimal256(40, 2)}), ["id"]),
        "a table holds at most 38 digits: cast it to decimal(38,2) if its values fit, otherwise to string",
    ),
    "a key of floats": (
        lambda db, t: db.create_table("x", data={"id": [1.5]}, primary_key=["id"]),
        "a key may have integers, decimals",
    ),
    "a column that options are for": (
        lambda db, t: db.create_table("x", data={"id": [1]}, primary_key=["id"], column_options={"i": {}}),
        "unknown columns: i; the schema has id",
    ),
    "one level for a list": (
        lambda db, t: db.create_table("x", data={"id": [1]}, primary_key=["id"], partition_by=LEVEL),
        "partition_by must be a list of levels",
    ),
    "a name for a level": (
        lambda db, t: db.create_table("x", data={"id": [1]}, primary_key=["id"], partition_by=["id"]),  # pyright: ignore[reportArgumentType]
        "partition_by must be a list of levels",
    ),
    "no levels": (
        lambda db, t: db.create_table("x", data={"id": [1]}, primary_key=["id"], partition_by=None),  # pyright: ignore[reportArgumentType]
        "partition_by must be a list of levels",
    ),
    "options of no column": (
        lambda db, t: db.create_table("x", data={"id": [1]}, primary_key=["id"], column_options=3),  # pyright: ignore[reportArgumentType]
        "column_options must be a dict",
    ),
    "a number that is none": (lambda db, t: t.insert({"id": [1]}, writer="a", seq="b"), "seq an integer"),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("case", SAID.values(), ids=SAID)
def test_what_is_wrong_and_what_works(db: Database, homes: Table, case: tuple[Callable[..., Any], str]) -> None:
    act, word = case
    with pytest.raises(nyala.InvalidArgumentError) as refused:
        act(db, homes)
    assert word in refused.value.message and "\n" not in refused.value.message
    assert "pydantic" not in refused.value.message


UNKNOWN: dict[str, Callable[[Table], Any]] = {
    "columns": lambda t: t.scan(["zip"]).to_arrow(),
    "where": lambda t: t.scan(where="zip = 1").to_arrow(),
    "order_by": lambda t: t.scan(order_by="zip").to_arrow(),
    "aggregate": lambda t: t.scan().aggregate({"n": ("zip", "sum")}),
    "changes": lambda t: t.changes(t.last_change(), columns=["zip"]).to_arrow(),
    "insert": lambda t: t.insert({"id": [1], "zip": [1]}),
    "update_where": lambda t: t.update_where({"city": "zip"}),
    "set": lambda t: t.update_where({"zip": "1"}),
    "alter": lambda t: t.alter().drop_column("zip").apply(),
}


@pytest.mark.parametrize("act", UNKNOWN.values(), ids=UNKNOWN)
def test_a_column_that_is_not_there_has_one_code(homes: Table, act: Callable[[Table], Any]) -> None:
    homes.insert({"id": [7]})
    with pytest.raises(nyala.InvalidArgumentError, match=r"no column 'zip'.*city"):
        act(homes)


def test_a_store_that_is_open_already(tmp_path: Path) -> None:
    with (
        nyala.open(tmp_path / "store"),
        pytest.raises(nyala.UnavailableError, match="this process already has the store open"),
    ):
        nyala.open(tmp_path / "store")
    nyala.open(tmp_path / "store").close()


def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(nyala.InvalidArgumentError, match=f"{place} could.*a file where a directory should be"):
            nyala.open(place)


def test_options_of_open(tmp_path: Path) -> None:
    with pytest.raises(nyala.InvalidArgumentError, match="unknown 'durabilty': did you mean 'durability'"):
        nyala.open(tmp_path / "store", durabilty="os")  # pyright: ignore[reportCallIssue]
    with pytest.raises(
        nyala.InvalidArgumentError, match=r"the call of nyala\.open is wrong at memory_bytes: input should"
    ):
        nyala.open(tmp_path / "store", memory_bytes="abc")  # pyright: ignore[reportArgumentType]


def test_a_url_is_no_directory_and_a_directory_no_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(nyala.InvalidArgumentError, match=r"use nyala\.connect for 'grpc://127\.0\.0\.1:8815'"):
        nyala.open("grpc://127.0.0.1:8815")
    assert not any(tmp_path.iterdir())
    for no_url in ("data/", ["data/"]):
        with pytest.raises(nyala.InvalidArgumentError, match=r"use nyala\.open for a directory, connect"):
            nyala.connect(no_url)


def test_what_a_database_and_an_alteration_print(tmp_path: Path, homes: Table) -> None:
    with nyala.open(tmp_path / "store") as db:
        assert repr(db) == f"Database(Store({str(tmp_path / 'store')!r}))"
    assert repr(homes.alter().drop_column("city")) == "TableAlteration('homes': 1 step, made by apply())"


def test_libraries_that_are_not_there(homes: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nyala.clients.api.scan.find_spec", lambda name: None)
    for name in ("pandas", "polars"):
        with pytest.raises(nyala.InvalidArgumentError, match=f"to_{name} needs {name}: pip install {name}"):
            getattr(homes.scan(), f"to_{name}")()


def test_open_where_only_the_client_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nyala.engine.store", None)
    with pytest.raises(nyala.InvalidArgumentError, match=r"pip install 'nyala\[server\]', or connect"):
        nyala.open(tmp_path / "store")


def test_nobody_answers() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(nyala.UnavailableError) as refused:
            nyala.connect(f"grpc://127.0.0.1:{taken.getsockname()[1]}", retries=False)
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    assert (
        f"connection refused at {address}; is it running" in refused.value.message
        and "Flight" not in refused.value.message
    )


def test_a_port_in_use(store: Store) -> None:
    first = FlightServer(store, "grpc://127.0.0.1:0")
    with pytest.raises(nyala.UnavailableError, match="the port is in use"):
        FlightServer(store, f"grpc://127.0.0.1:{first.port}")
    with pytest.raises(nyala.UnavailableError, match="the port is in use; choose another with --listen"):
        check_free(f"grpc://127.0.0.1:{first.port}")
    first.shutdown()
    for free in (f"grpc://127.0.0.1:{first.port}", "grpc://127.0.0.1:0", "grpc+unix:///tmp/x"):
        check_free(free)
    with pytest.raises(nyala.UnavailableError, match=r"cannot listen on .*: Cannot assign"):
        check_free("grpc://192.0.2.77:8815")


def test_a_socket_in_use(store: Store, tmp_path: Path) -> None:
    location = f"grpc+unix://{tmp_path / 'socket'}"
    first = FlightServer(store, location)
    with pytest.raises(nyala.UnavailableError, match="the socket is in use; choose another with --listen"):
        check_free(location)
    with nyala.connect(location) as db:
        assert db.list_tables() == []
    first.shutdown()
    check_free(location)


def test_a_full_socket_is_in_use_and_one_left_behind_is_not(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as waiting:
        listening.bind(path)
        listening.listen(0)
        waiting.connect(path)
        with pytest.raises(nyala.UnavailableError, match="in use"):
            check_free(f"grpc+unix://{path}")
    check_free(f"grpc+unix://{path}")


LETTERS = {"ASCII": "x", "escaped": "\u00e9", "wide": "\u4e16", "beyond": "\U0001f600", "percent": "%"}


@pytest.mark.parametrize("letter", LETTERS.values(), ids=LETTERS)
@pytest.mark.parametrize("count", [200, 1_100, 20_000])
def test_long_errors_arrive_whole_or_say_that_they_are_cut(remote: Database, url: str, letter: str, count: int) -> None:
    homes = remote.create_table("homes", pa.schema([("id", pa.int64())]), ["id"])
    name = letter * count
    client = fl.connect(url)

    def put() -> None:
        writer, _ = client.do_put(fl.FlightDescriptor.for_path("homes"), pa.schema([(name, pa.int64())]))
        writer.write_batch(pa.record_batch({name: [1]}))
        writer.close()

    def action() -> None:
        list(client.do_action(fl.Action("describe_table", b'{"table": "%s"}' % name.encode())))

    for act in (lambda: homes.scan([name]).to_arrow(), lambda: homes.scan([name]).explain(), put, action):
        with pytest.raises((nyala.StoreError, fl.FlightError)) as refused:
            act()
        text = str(refused.value)
        assert "column" in text or "table" in text, text[:200]
        is_whole = name in text
        assert is_whole or "... (cut: " in text
        assert is_whole or count > 200 or letter != "x"
    client.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("grpc://127.0.0.1", "the URL grpc://127.0.0.1 has no port: add it, as in grpc://127.0.0.1:8815"),
        ("grpc://[::1]/", "has no port: add it, as in grpc://[::1]:8815"),
        ("grpc://:8815", "has no host: give it, as in grpc://127.0.0.1:8815"),
        ("grpc+tls://", "has no host: give it, as in grpc+tls://127.0.0.1:8815"),
        ("http://10.0.0.7:8815", "is the URL of a web page: give grpc://10.0.0.7:8815"),
        ("https://db/", "is the URL of a web page: give grpc+tls://db:8815"),
        ("grpc://m1:8815,m2", "the URL grpc://m2 has no port"),
    ],
)
def test_a_url_that_lacks_a_part_is_told_which(url: str, message: str) -> None:
    with pytest.raises(nyala.InvalidArgumentError) as refused:
        nyala.connect(url, retries=False)
    assert message in refused.value.message


def test_the_port_of_https_is_taken_where_a_url_has_none() -> None:
    """As behind a gateway; where nobody answers there, the message says where the port came from."""
    with pytest.raises(nyala.UnavailableError) as refused:
        nyala.connect("grpc+tls://127.0.0.1", retries=False)
    assert "127.0.0.1:443; is it running, and is this its address? If the URL has no port" in refused.value.message


def test_a_port_that_speaks_http() -> None:
    """That of the metrics, for one."""

    class Page(StreamRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            self.wfile.write(self.server.answer)  # pyright: ignore[reportAttributeAccessIssue]

    for answer, meaning in ((b"HTTP/1.1 404 Not Found", "answers HTTP, not Arrow Flight"), (b"SSH-2.0-x", "not speak")):
        with TCPServer(("127.0.0.1", 0), Page) as page:
            page.answer = answer + b"\r\n\r\n"  # pyright: ignore[reportAttributeAccessIssue]
            Thread(target=page.serve_forever, daemon=True).start()
            with pytest.raises(nyala.UnavailableError, match=f"{meaning}.*; use the port of "):
                nyala.connect(f"grpc://127.0.0.1:{page.server_address[1]}", retries=False)
            page.shutdown()


def test_a_token_with_the_line_end_of_its_file() -> None:
    with pytest.raises(nyala.InvalidArgumentError, match="such as the line end of a file: strip it"):
        nyala.connect("grpc://127.0.0.1:1", token="secret\n", retries=False)
