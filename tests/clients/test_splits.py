"""Splits: the endpoints of a scan are disjoint, complete and at one snapshot, while writes and flushes go on."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.engine.store import Store

KEYS = {
    "one integer": [("a", pa.int64())],
    "two columns": [("s", pa.string()), ("a", pa.int32())],
}


def sent(fields: list, ids: Iterable[int]) -> list[dict]:
    names = [name for name, _ in fields]
    return (
        [{"s": f"s{each % 50}", "a": each, "v": each % 7, "t": "x" * 20} for each in ids]
        if "s" in names
        else [{"a": each, "v": each % 7, "t": "x" * 20} for each in ids]
    )


def create(db: Database, fields: list, **options):
    schema = pa.schema([*fields, ("v", pa.int32()), ("t", pa.string())])
    return db.create_table("t", schema, [name for name, _ in fields], **options)


def endpoints(client: fl.FlightClient, **scan) -> list[fl.FlightEndpoint]:
    command = json.dumps({"table": "t", **scan}).encode()
    return client.get_flight_info(fl.FlightDescriptor.for_command(command)).endpoints


def read(client: fl.FlightClient, parts: list[fl.FlightEndpoint]) -> list[list[dict]]:
    return [client.do_get(part.ticket).read_all().to_pylist() for part in parts]


@pytest.mark.parametrize("kind", KEYS)
def test_the_endpoints_are_the_scan_cut_in_parts(url: str, remote: Database, kind: str) -> None:
    table = create(remote, KEYS[kind], partition_by=[nyala.hash("a", buckets=2)])
    dice = random.Random(kind)
    ids = list(range(30_000))
    dice.shuffle(ids)
    for batch in (ids[:10_000], ids[10_000:20_000]):
        table.upsert(sent(KEYS[kind], batch))
        table.maintain("flush")
    table.upsert(sent(KEYS[kind], ids[20_000:]))
    with fl.connect(url) as client:
        parts = endpoints(client, split_bytes=100_000)
        told = [json.loads(part.app_metadata) for part in parts]
        found = read(client, parts)
        assert len(parts) > 6 and len({each["tablet"] for each in told}) == 2
        keys = [tuple(row.values())[: len(KEYS[kind])] for rows in found for row in rows]
        assert len(keys) == len(set(keys)) == 30_000
        sizes = [len(rows) for rows in found]
        assert max(sizes) < 2.5 * 30_000 / len(parts), "the parts are balanced"
        for rows, each in zip(found, told, strict=True):
            assert abs(each["rows"] - len(rows)) < 1_500
        filtered = read(client, endpoints(client, split_bytes=20_000, where="v = 3 AND a < 20000", columns=["a"]))
        assert sorted(row["a"] for rows in filtered for row in rows) == [
            each for each in range(20_000) if each % 7 == 3
        ]
        assert len(endpoints(client, split_bytes=100_000, ordered=True)) == 1
        changed = read(client, endpoints(client, split_bytes=100_000, changes={"since": remote.now() - (1 << 40)}))
        assert sorted(row["a"] for rows in changed for row in rows) == list(range(30_000))


def test_endpoints_show_one_snapshot_while_writes_and_flushes_go_on(url: str, remote: Database, store: Store) -> None:
    table = create(remote, KEYS["one integer"])
    table.upsert(sent(KEYS["one integer"], range(0, 20_000, 2)))
    stop = threading.Event()

    def write() -> None:
        dice = random.Random(1)
        while not stop.is_set():
            first = dice.randrange(20_000)
            table.upsert(sent(KEYS["one integer"], range(first, first + 50)))
            table.delete([{"a": dice.randrange(20_000)}], on_error="return")
            if dice.random() < 0.3:
                store.maintain("t", dice.choice(["flush", "flush_deltas", "compact"]))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with fl.connect(url) as client:
            for _ in range(5):
                snapshot = remote.now()
                parts = endpoints(client, split_bytes=60_000, as_of=snapshot)
                found = read(client, parts)
                assert len(parts) > 1
                whole = table.scan(as_of=snapshot, ordered=True).to_arrow().to_pylist()
                assert sorted((row for rows in found for row in rows), key=lambda row: row["a"]) == whole
    finally:
        stop.set()
        writer.join()


def test_a_part_that_is_none_is_refused(remote: Database, url: str) -> None:
    create(remote, KEYS["one integer"])
    with fl.connect(url) as client, pytest.raises(fl.FlightError, match="not hexadecimal"):
        client.do_get(fl.Ticket(b'{"table":"t","key_lower":"xy"}')).read_all()
