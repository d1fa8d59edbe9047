"""What goes wrong is said in one sentence that tells what to do, in this process and over Flight."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.clients.database import Database
from nyala.clients.table import Table
from nyala.engine.store import Store
from nyala.flight_server.server import FlightServer

SAID: dict[str, tuple[Callable[[Database, Table], Any], str]] = {
    "a dict as where": (lambda db, t: t.scan(where={"city": "Oslo"}).to_arrow(), "city = 'Oslo'"),
    "ordered by a column": (lambda db, t: t.scan(ordered="city"), "order_by='city'"),  # pyright: ignore[reportArgumentType]
    "a limit with a fraction": (lambda db, t: t.scan(limit=5.5), "limit"),  # pyright: ignore[reportArgumentType]
    "a number as column": (lambda db, t: t.scan(columns=[1]), "columns"),  # pyright: ignore[reportArgumentType]
    "a table option": (
        lambda db, t: db.create_table("x", data={"id": [1]}, primary_key=["id"], histroy_max_age_seconds=5),
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
    "a number that is none": (lambda db, t: t.insert({"id": [1]}, writer="a", seq="b"), "whole number"),  # pyright: ignore[reportArgumentType]
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
    with nyala.open(tmp_path / "store"), pytest.raises(nyala.UnavailableError, match="this process has the store open"):
        nyala.open(tmp_path / "store")
    nyala.open(tmp_path / "store").close()


def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(nyala.InvalidArgumentError, match="a file where a directory should be"):
            nyala.open(place)


def test_options_of_open(tmp_path: Path) -> None:
    with pytest.raises(nyala.InvalidArgumentError, match="no 'durabilty': did you mean 'durability'"):
        nyala.open(tmp_path / "store", durabilty="os")


def test_open_where_only_the_client_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nyala.engine.store", None)
    with pytest.raises(nyala.InvalidArgumentError, match=r"pip install 'nyala\[server\]', or connect"):
        nyala.open(tmp_path / "store")


def test_nobody_answers() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(nyala.UnavailableError) as refused:
            nyala.connect(f"grpc://127.0.0.1:{taken.getsockname()[1]}", retries=False)
    assert "connection refused; is it running" in refused.value.message and "Flight" not in refused.value.message


def test_a_port_in_use(store: Store) -> None:
    first = FlightServer(store, "grpc://127.0.0.1:0")
    with pytest.raises(nyala.UnavailableError, match="the port is in use"):
        FlightServer(store, f"grpc://127.0.0.1:{first.port}")
    first.shutdown()


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
