"""Attackers of sessions: messages that are wrong, answers that nobody reads, crowds, deaths, and tables that go."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from nyala.schemas.protocol.session import answer_of, request
from tests.campaigns.attack.attackers import PATIENCE_SECONDS, Attack, forever, rows


class Session:
    """A session of a plain Flight client."""

    def __init__(self, client: fl.FlightClient) -> None:
        self.writer, self.reader = client.do_exchange(fl.FlightDescriptor.for_command(b'{"session":1}'))
        self.writer.begin(pa.schema([]))

    def send(self, first: Any, second: Any = None, rest: bytes = b"") -> None:
        second_line = b"" if second is None else json.dumps(second).encode()
        self.writer.write_metadata(request(json.dumps(first).encode(), second_line, rest))

    def answer(self) -> dict[str, Any]:
        return answer_of(self.reader.read_chunk().app_metadata.to_pybytes())[0]

    def write(self, batch: pa.RecordBatch, seq: int | None = None, more: bool = False, **command: Any) -> None:
        self.send(write_line(batch.schema, **command), {"seq": seq, "more": more}, batch.serialize().to_pybytes())


def write_line(schema: pa.Schema, table: str = "homes", **command: Any) -> dict[str, Any]:
    return {"write": {"table": table, **command}, "arrow_schema": as_base64(schema)}


def as_base64(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


# Each is what a thread does over and over, with a connection of its own and the thread's number.


def _nonsense(client: fl.FlightClient, number: int) -> None:
    """Send requests whose bytes are changed, among them forged buffers; every one must be answered."""
    chance = random.Random(time.monotonic_ns())
    session = Session(client)
    batch = rows(chance.randrange(1_000), chance.randrange(1, 5))
    key = json.dumps({"key": [1]}).encode()
    for _ in range(200):
        what = chance.choice(["get", "get_many", "scan", "write"])
        value: Any = (
            {"table": "homes", "limit": 5} if what == "scan" else {"table": "homes"} if what == "write" else "homes"
        )
        first = json.dumps({what: value, "arrow_schema": as_base64(batch.schema)}).encode()
        second = key if what == "get" else b"{}"
        parts = [bytearray(each) for each in (first, second, batch.serialize().to_pybytes())]
        for _ in range(chance.randrange(6)):
            part = chance.choice(parts)
            part[chance.randrange(len(part))] = chance.randrange(256)
        message = request(bytes(parts[0]), bytes(parts[1]), bytes(parts[2]))
        session.writer.write_metadata(message[: chance.choice([len(message), chance.randrange(len(message) + 1)])])
        said = session.answer()
        assert "rows" in said or "error" in said or "row" in said or "large" in said, said


def _expanding(client: fl.FlightClient, number: int) -> None:
    """Send a few bytes that stand for millions of keys or rows."""
    run = pa.RunEndEncodedArray.from_arrays(pa.array([30_000_000], pa.int32()), pa.array([number], pa.int64()))
    batch = pa.record_batch([run], names=["id"])
    session = Session(client)
    session.send({"get_many": "homes", "arrow_schema": as_base64(batch.schema)}, None, batch.serialize().to_pybytes())
    session.answer()


def _never_reading(client: fl.FlightClient, number: int) -> None:
    """Send as much as the transport takes, and read no answer."""
    session = Session(client)
    for count in range(1 << 30):
        if number % 2:
            session.send({"scan": {"table": "homes", "limit": 1_000}})
        else:
            session.write(rows(count % 1_000, 20), more=True, op="insert")


def _idle(client: fl.FlightClient, number: int) -> None:
    """Ask once, and stay; or end the sending half, and stay."""
    session = Session(client)
    session.send({"get": "homes"}, {"key": [number]})
    if number % 3 == 0:
        session.writer.done_writing()
    elif number % 3 == 1:
        session.answer()
    time.sleep(PATIENCE_SECONDS)


def _repeating(client: fl.FlightClient, number: int) -> None:
    """Write many at once under numbers that are used already, from several sessions, also for other rows."""
    session = Session(client)
    for seq in range(60):
        session.write(rows(seq % 7, 1 + seq % 3), seq % 5, more=True, writer=f"w{number % 2}")
    for _ in range(60):
        session.answer()


def _dropping(client: fl.FlightClient, number: int) -> None:
    """Write to and read from a table that others create, alter and drop meanwhile."""
    name = f"gone{number % 2}"
    columns = [{"name": "id", "type": "int64", "nullable": False}, {"name": "city", "type": "string"}]
    body = {"name": name, "columns": [*columns, {"name": "price", "type": "double"}], "primary_key": ["id"]}
    if number < 2:
        alter = {"table": name, "steps": [{"op": "drop_column", "name": "price"}]}
        for verb, sent in (("create_table", body), ("alter_table", alter), ("drop_table", {"table": name})):
            with suppress(fl.FlightError):
                list(client.do_action(fl.Action(verb, json.dumps(sent).encode())))
            time.sleep(0.02)
        return
    session = Session(client)
    for seq in range(50):
        session.write(rows(seq, 1), more=True, table=name)
        session.send({"get": name}, {"key": [seq]})
        session.send({"scan": {"table": name, "limit": 3}})
    for _ in range(150):
        session.answer()


def _pipelining(client: fl.FlightClient, number: int) -> None:
    """Ask for the same row without an end, many requests ahead of their answers."""
    session = Session(client)
    message = request(json.dumps({"get": "homes"}).encode(), json.dumps({"key": [number % 3]}).encode())

    def read() -> None:
        with suppress(fl.FlightError, pa.ArrowException, OSError, StopIteration):
            while True:
                session.reader.read_chunk()

    threading.Thread(target=read, daemon=True).start()
    while True:
        session.writer.write_metadata(message)


def nonsense(url: str) -> None:
    """Malformed messages, forged buffers, and bytes that stand for millions of keys."""
    forever(url, 8, lambda client, number: (_expanding if number < 2 else _nonsense)(client, number))


def never_reading(url: str) -> None:
    """Pipelines without an end, of which no answer is read."""
    forever(url, 16, _never_reading)


def crowds(url: str) -> None:
    """Hundreds of sessions that ask once, and stay; a third of them half closed."""
    forever(url, 300, _idle)


def pipelines(url: str) -> None:
    """Gets of the same few rows, as many as the transport takes."""
    forever(url, 32, _pipelining)


def deaths(url: str) -> None:
    """Processes that are killed in the middle of their writes."""
    command = [sys.executable, sys.argv[0], "--attacker", "session_never_reading", url]
    while True:
        child = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(1 + random.random())
        child.kill()
        child.wait()


def repeats(url: str) -> None:
    """Numbers of writes used again, and tables that are altered and dropped under their writers and readers."""
    forever(url, 12, lambda client, number: (_repeating if number % 2 else _dropping)(client, number // 2))


SESSION_ATTACKS: dict[str, Attack] = {
    f"session_{each.__name__}": each for each in (nonsense, never_reading, crowds, pipelines, deaths, repeats)
}


def sessions(url: str) -> None:
    """All of them at once."""
    for attack in SESSION_ATTACKS.values():
        threading.Thread(target=attack, args=(url,), daemon=True).start()
    time.sleep(PATIENCE_SECONDS)
