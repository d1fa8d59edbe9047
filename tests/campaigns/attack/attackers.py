"""The attackers: each runs in a process of its own until it is killed. Those of sessions are in `session_attackers`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from tests.campaigns.attack.shown import connect

MIB = 1 << 20
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("city", pa.string()), ("price", pa.float64())])
PATIENCE_SECONDS = 90.0
Attack = Callable[[str], None]
"""Attacks the server at a URL until the process is killed."""


def rows(first: int, count: int) -> pa.RecordBatch:
    ids = range(first, first + count)
    return pa.record_batch(
        [pa.array(ids), pa.array([f"city {i % 7}" for i in ids]), pa.array(ids, pa.float64())], schema=SCHEMA
    )


def put(client: fl.FlightClient, batch: pa.RecordBatch, options: fl.FlightCallOptions | None = None) -> None:
    writer, _ = client.do_put(fl.FlightDescriptor.for_path("homes"), batch.schema, options)
    writer.write_batch(batch)
    writer.close()


def forever(url: str, count: int, attack: Callable[[fl.FlightClient, int], Any]) -> None:
    """Let ``count`` threads, each with a connection of its own, do it over and over."""

    def run(number: int) -> None:
        client = connect(url)
        while True:
            with suppress(fl.FlightError, pa.ArrowException, OSError):
                attack(client, number)
            time.sleep(0.01)

    for number in range(count):
        threading.Thread(target=run, args=(number,), daemon=True).start()
    time.sleep(PATIENCE_SECONDS)


def bombs(url: str) -> None:
    """Ten columns of 200 MB of zeros, some 80 KB with zstd."""
    column = pa.repeat(pa.scalar(0, pa.int64()), 200 * MIB // 8)
    batch = pa.record_batch({f"c{number}": column for number in range(10)})

    def attack(client: fl.FlightClient, number: int) -> None:
        options = pa.ipc.IpcWriteOptions(compression=["zstd", "lz4"][number % 2])
        if number < 2:
            put(client, batch, fl.FlightCallOptions(write_options=options))
            return
        writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(b'{"table":"homes"}'))
        writer.begin(batch.schema, options=options)
        writer.write_batch(batch)
        writer.done_writing()
        reader.read_all()

    forever(url, 4, attack)


def giants(url: str) -> None:
    """Batches of 1 GB as they are: not compressed, so that the server has to receive them to see what they are."""
    column = pa.repeat(pa.scalar(0, pa.int64()), 100 * MIB // 8)
    batch = pa.record_batch({f"c{number}": column for number in range(10)})

    def attack(client: fl.FlightClient, number: int) -> None:
        put(client, batch)

    forever(url, 4, attack)


def filters(url: str) -> None:
    """Texts of 4 MB, of whose ends the clients never hear."""
    length = 4 * MIB - 10
    texts = ["id=1 or " * (length // 8) + "id=1", "id in (" + "1," * (length // 2), "(" * (length // 2) + "id=1"]

    def attack(client: fl.FlightClient, number: int) -> None:
        command = json.dumps({"table": "homes", "where": texts[number % 3]})
        client.get_flight_info(fl.FlightDescriptor.for_command(command), fl.FlightCallOptions(timeout=1))

    forever(url, 8, attack)


def expressions(url: str) -> None:
    """Updates and filters that compute for ever: nested operands, patterns, long text, and texts that grow."""
    twice = "nullif(" * 60 + "price" + ", -1)" * 60
    growing = "replace(" * 12 + "city" + ", 'c', 'cccccccccc')" * 12
    pattern = "%c" + "_" * 900 + "z"
    search = " OR ".join([f"city || repeated LIKE '{pattern}'".replace("repeated", growing)] * 20)
    bodies = [
        {"set": {"price": twice}, "where": "id >= 0"},
        {"set": {"price": "CASE " * 60 + "price" + " WHEN -1 THEN 0 WHEN -2 THEN 0 ELSE 5 END" * 60}},
        {"set": {"city": "date(" * 60 + "city" + ")" * 60}},
        {"set": {f"c{number}": "price + 1" * 900 for number in range(1_800)}},
        {"set": {"city": f"concat({growing}, {growing}, {growing})"}},
        {"set": {"price": " + ".join(["price"] * 9_000)}},
    ]
    filters = [search, f"city LIKE '{pattern}' OR upper(city) LIKE '{pattern}'", " + ".join(["price"] * 9_000) + " < 0"]

    def attack(client: fl.FlightClient, number: int) -> None:
        patience = fl.FlightCallOptions(timeout=3)
        if number % 3 == 2:
            command = {"table": "homes", "columns": ["id"], "where": filters[number // 3 % len(filters)]}
            client.do_get(fl.Ticket(json.dumps(command).encode()), patience).read_all()
            return
        body = json.dumps({"table": "homes", "kind": "update", **bodies[number % len(bodies)]}).encode()
        list(client.do_action(fl.Action("execute", body), patience))

    forever(url, 24, attack)


def plans(url: str) -> None:
    """Sixty at once, with lists that may be as long as this, and three seconds of patience."""
    where = "id in (" + ",".join(map(str, range(90_000))) + ")"
    command = json.dumps({"table": "homes", "where": where})
    descriptor = fl.FlightDescriptor.for_command(command)
    forever(url, 60, lambda client, _: client.get_flight_info(descriptor, fl.FlightCallOptions(timeout=3)))


def idle_readers(url: str) -> None:
    """Two hundred scans of which nobody reads a row."""
    forever(url, 200, lambda client, _: stay(client.do_get(fl.Ticket(b'{"table":"homes"}'))))


def idle_writers(url: str) -> None:
    """Two hundred write streams that bring nothing."""
    forever(url, 200, lambda client, _: stay(client.do_put(fl.FlightDescriptor.for_path("homes"), SCHEMA)))


def stay(stream: Any) -> None:
    """Keep a stream open: nothing is read and nothing is sent."""
    time.sleep(PATIENCE_SECONDS)
    del stream


def staging(url: str) -> None:
    """Transactions that nobody commits."""
    batch = rows(0, 50_000)
    counter = iter(range(1 << 30))

    def attack(client: fl.FlightClient, _: int) -> None:
        stage = {"transaction": f"t{next(counter)}", "part": "p"}
        command = json.dumps({"table": "homes", "stage": stage})
        writer, _ = client.do_put(fl.FlightDescriptor.for_command(command), SCHEMA)
        writer.write_batch(batch)
        writer.write_metadata(json.dumps({"commit": True, "rows": batch.num_rows}).encode())
        writer.close()

    forever(url, 4, attack)


def leases(url: str) -> None:
    """Pins and imports for a day."""
    bodies = {"pin_snapshot": {"table": "homes", "ttl_seconds": 86400}}
    bodies["import_begin"] = bodies["pin_snapshot"]
    names = list(bodies)

    def attack(client: fl.FlightClient, number: int) -> None:
        name = names[number % 2]
        list(client.do_action(fl.Action(name, json.dumps(bodies[name]).encode())))

    forever(url, 4, attack)


def repeated_keys(url: str) -> None:
    """Keys of 48 KB in all, of one row of 60 KB: each answer is 360 MB. Half of the clients take none."""
    row = pa.record_batch([pa.array([-1]), pa.array(["x" * 60_000]), pa.array([0.0])], schema=SCHEMA)
    put(connect(url), row)
    keys = pa.record_batch([pa.array([-1] * 6_000)], names=["id"])

    def attack(client: fl.FlightClient, number: int) -> None:
        writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(b'{"table":"homes"}'))
        writer.begin(keys.schema)
        writer.write_batch(keys)
        if number % 2:
            stay((writer, reader))
        for _ in range(180):
            reader.read_chunk()
        reader.cancel()

    forever(url, 8, attack)


def sorts(url: str) -> None:
    """Eight at once that sort all rows, or make a group of each, and take nothing of the answer for a second."""
    sort = {"order_by": [{"column": "price", "descending": True}]}
    group = {"aggregate": {"most": ["city", "max"]}, "group_by": ["id"]}

    def attack(client: fl.FlightClient, number: int) -> None:
        stream = client.do_get(fl.Ticket(json.dumps({"table": "homes", **(group if number % 2 else sort)}).encode()))
        stream.read_chunk()
        time.sleep(1)
        stream.cancel()

    forever(url, 8, attack)


ATTACKS: dict[str, Attack] = {
    each.__name__: each
    for each in (
        bombs,
        giants,
        filters,
        expressions,
        plans,
        idle_readers,
        idle_writers,
        staging,
        leases,
        repeated_keys,
        sorts,
    )
}
