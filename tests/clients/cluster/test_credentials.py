"""Servers that share tables and ask for tokens show each other theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.clients.flight.credentials import Credentials, TokenFile
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.security.security import Security
from nyala.flight_server.security.token_file import create_token
from nyala.flight_server.server import FlightServer
from nyala.flight_server.settings.settings import ServeOptions
from nyala.flight_server.stores.gateway import Gateway
from nyala.schemas.protocol.service import StoreService
from nyala.schemas.store.placement import Placement, ServerIdentity

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
Start = Callable[[Credentials], str]


@pytest.fixture
def token(tmp_path: Path) -> str:
    return create_token(tmp_path / "tokens.json", "alice", ("admin",))[0]


@pytest.fixture
def start(tmp_path: Path, token: str) -> Iterator[Start]:
    """Start two servers that show each other these credentials; return the location of one."""
    running: list[tuple[FlightServer, Gateway]] = []

    def started(credentials: Credentials) -> str:
        placement = Placement(servers={name: (f"grpc+unix://{tmp_path}/{name}",) for name in "ab"})
        for name in "ab":
            options = StoreOptions(maintenance="off", placement=placement, server=name)
            gateway = Gateway(Store.open(MemoryFileSystem(), options), ServerIdentity(placement, name), credentials)
            security = Security(ServeOptions(tokens=tmp_path / "tokens.json"))
            location = placement.servers[name][0]
            running.append((FlightServer(cast(StoreService, gateway), location, None, security), gateway))
        return placement.servers["a"][0]

    yield started
    for server, gateway in running:
        server.shutdown()
        gateway.close()


def rows_by_one_server(location: str, token: str) -> int:
    """All rows, read by a client that knows one server, which asks the other."""
    shown = fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
    with fl.connect(location) as client:
        return client.do_get(fl.Ticket(b'{"table":"t"}'), shown).read_all().num_rows


def fill(location: str, token: str) -> None:
    with nyala.connect(location, token=token) as db:
        table = db.create_table("t", SCHEMA, primary_key=["id"], partition_by=[nyala.partition.hash("id", buckets=4)])
        table.insert([{"id": number} for number in range(100)])
        assert table.scan().to_arrow().num_rows == 100
    with pytest.raises(nyala.UnauthenticatedError):
        nyala.connect(location).tables()


def test_servers_show_each_other_their_token(start: Start, token: str, tmp_path: Path) -> None:
    own, _ = create_token(tmp_path / "tokens.json", "server", ("admin",))
    (tmp_path / "secret").write_text(own)
    location = start(Credentials.of(TokenFile(tmp_path / "secret")))
    fill(location, token)
    assert rows_by_one_server(location, token) == 100


def test_a_server_without_a_token_is_refused_by_the_other(start: Start, token: str) -> None:
    location = start(Credentials())
    fill(location, token)
    with pytest.raises(fl.FlightUnauthenticatedError):
        rows_by_one_server(location, token)
