"""Wrong requests, by accident or on purpose: a clear error each, nothing half applied, and the server goes on."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.settings.config import ServerConfig
from nyala.schemas.protocol.service import StoreService
from tests.flight_server.served import SCHEMA, Served, code_of


def refused(action: Callable[[], object]) -> tuple[str, str]:
    """The code and the text of the error that ``action`` raises."""
    with pytest.raises(fl.FlightError) as caught:
        action()
    return code_of(caught.value), str(caught.value)


def strings(offsets: list[int], data: bytes) -> pa.Array:
    """A string column made of raw buffers, valid or not."""
    buffers = [None, pa.py_buffer(np.array(offsets, np.int32).tobytes()), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


def homes(city: pa.Array) -> pa.RecordBatch:
    ids = pa.array(range(len(city)), pa.int64())
    prices = pa.array([0.0] * len(city))
    return pa.RecordBatch.from_arrays([ids, city, prices], schema=SCHEMA)


FORGED = {
    "an offset behind the end": strings([0, 1_000_000, 6, 9], b"aaabbbccc"),
    "offsets that fall": strings([0, 6, 3, 9], b"aaabbbccc"),
    "a negative offset": strings([0, -5, 6, 9], b"aaabbbccc"),
    "bytes that are not UTF-8": strings([0, 3, 6, 9], b"aa\xffbbbccc"),
    "half a character": strings([0, 3, 6, 9], b"aa\xc3bbbccc"),
}


@pytest.mark.parametrize("city", FORGED.values(), ids=FORGED)
def test_forged_batch(served: Served, city: pa.Array) -> None:
    code, text = refused(lambda: served.put("homes", homes(city)))
    assert code == "INVALID_ARGUMENT" and "batch 0 is malformed" in text
    assert served.ids() == []
    served.put("homes", served.rows(1))
    assert served.ids() == [0]


def test_forged_batch_after_good_ones(served: Served) -> None:
    bad = homes(FORGED["offsets that fall"])
    code, text = refused(lambda: served.put("homes", served.rows(2, start=10), bad, served.rows(2, start=20)))
    assert code == "INVALID_ARGUMENT" and "batch 1" in text
    assert served.ids() == [10, 11]


def test_forged_keys(served: Served) -> None:
    writer, reader = served.client.do_exchange(fl.FlightDescriptor.for_command(b'{"table":"homes"}'))
    schema = pa.schema([("id", pa.string())])
    writer.begin(schema)
    writer.write_batch(pa.RecordBatch.from_arrays([FORGED["a negative offset"]], schema=schema))
    writer.done_writing()
    assert refused(reader.read_all)[0] == "INVALID_ARGUMENT"
    with pytest.raises(fl.FlightError):
        writer.close()


WRONG_SCHEMAS = {
    "a column of another type": pa.record_batch({"id": ["a"], "city": ["b"]}),
    "a column that is not there": pa.record_batch({"id": [1], "town": ["b"]}),
    "a list": pa.record_batch({"id": [1], "city": [["b"]]}),
    "a name that is not UTF-8": pa.record_batch([pa.array([1])], pa.schema([pa.field(b"\xc0", pa.int64())])),  # pyright: ignore[reportArgumentType]
    "a dictionary with an index out of range": pa.record_batch(
        {
            "id": [1],
            "city": pa.DictionaryArray.from_arrays(pa.array([7], pa.int8()), pa.array(["x"]), safe=False),
        }
    ),
}


@pytest.mark.parametrize("batch", WRONG_SCHEMAS.values(), ids=WRONG_SCHEMAS)
def test_wrong_schema(served: Served, batch: pa.RecordBatch) -> None:
    assert refused(lambda: served.put("homes", batch))[0] in ("INVALID_ARGUMENT", "NOT_FOUND")
    assert served.ids() == []


def test_null_key_refuses_its_row_only(served: Served) -> None:
    ids = pa.array([None, 5], pa.int64())
    batch = pa.record_batch({"id": ids, "city": ["a", "b"]})
    (answer,) = served.put("homes", batch)
    assert (answer["applied"], answer["error_count"]) == (1, 1)
    assert (answer["errors"][0]["row"], answer["errors"][0]["code"]) == (0, "INVALID_ARGUMENT")
    assert served.ids() == [5]


def test_unknown_table(served: Served) -> None:
    where = fl.FlightDescriptor.for_path("nope")
    assert refused(lambda: served.put("nope", served.rows(1)))[0] == "NOT_FOUND"
    assert refused(lambda: served.put("nope"))[0] == "NOT_FOUND"
    assert refused(lambda: served.put({"table": "nope", "commit": "stream"}, served.rows(1)))[0] == "NOT_FOUND"
    part = {"transaction": "t", "part": "p"}
    assert refused(lambda: served.put({"table": "nope", "stage": part}, served.rows(1)))[0] == "NOT_FOUND"
    assert refused(lambda: served.get({"table": "nope"}))[0] == "NOT_FOUND"
    assert refused(lambda: served.client.get_flight_info(where))[0] == "NOT_FOUND"
    assert refused(lambda: served.action("drop_table", {"table": "nope"}))[0] == "NOT_FOUND"
    with pytest.raises(KeyError, match=r"NOT_FOUND: .*nope") as caught:
        served.client.get_schema(where)
    assert ".py" not in str(caught.value) and "Traceback" not in str(caught.value)


TICKETS = {
    "no JSON": b"\x00\xff garbage",
    "no object": b"[1, 2]",
    "empty": b"",
    "no table": b"{}",
    "an unknown part": b'{"table":"homes","colums":["id"]}',
    "a wrong type": b'{"table":"homes","limit":"many"}',
    "a negative limit": b'{"table":"homes","limit":-1}',
    "a column twice": b'{"table":"homes","columns":["id","id"]}',
    "no moment": b'{"table":"homes","as_of":"yesterday"}',
    "the future": b'{"table":"homes","as_of":"2999-01-01T00:00:00Z"}',
    "a column that is not there": b'{"table":"homes","columns":["town"]}',
    "wrong changes": b'{"table":"homes","changes":{"sinse":1}}',
    "changes since when": b'{"table":"homes","changes":{}}',
    "changes of an unknown kind": b'{"table":"homes","changes":{"since":1,"kind":"net"}}',
    "changes as of a moment": b'{"table":"homes","as_of":1,"changes":{"since":1}}',
    "a nested filter": b'{"table":"homes","where":' + b'{"op":"not","arg":' * 5000 + b"1" + b"}" * 5000 + b"}",
    "a long name": b'{"table":"' + b"x" * (1 << 20) + b'"}',
    "a long name that is not ASCII": b'{"table":"' + "\u65e5".encode() * (1 << 18) + b'"}',
    "a huge ticket": b'{"table":"' + b"x" * (1 << 24) + b'"}',
}


@pytest.mark.parametrize("ticket", TICKETS.values(), ids=TICKETS)
def test_wrong_ticket(served: Served, ticket: bytes) -> None:
    assert refused(lambda: served.get(ticket))[0] in ("INVALID_ARGUMENT", "NOT_FOUND")
    descriptor = fl.FlightDescriptor.for_command(ticket)
    assert refused(lambda: served.client.get_flight_info(descriptor))[0] in ("INVALID_ARGUMENT", "NOT_FOUND")
    assert served.ids() == []


def test_a_text_of_millions_of_objects_is_not_read(served: Served) -> None:
    """15 MB of ``{}`` took 0.9 s to read, in which no other thread ran."""
    values = b"[" + b"{}," * 700_000 + b"1]"
    for where in (values, b'{"op":"in","column":"id","values":' + values + b"}"):
        ticket = b'{"table":"homes","where":' + where + b"}"
        code, text = refused(lambda ticket=ticket: served.get(ticket))
        assert code == "INVALID_ARGUMENT" and "objects and lists; at most 500,000 are allowed" in text
        assert "objects and lists" in refused(lambda ticket=ticket: served.action("explain", ticket))[1]
    listed = b"[" + b'{"decimal":"1"},' * 30_000 + b"1]"
    served.get(b'{"table":"homes","where":{"op":"in","column":"id","values":' + listed + b"}}")


COMMANDS = {
    "an unknown operation": {"table": "homes", "op": "fuse"},
    "an unknown part": {"table": "homes", "mode": 1},
    "a writer without a name": {"table": "homes", "writer": ""},
    "a writer with a long name": {"table": "homes", "writer": "w" * 129},
    "an unknown commit": {"table": "homes", "commit": "later"},
    "a staged stream that is not committed": {"table": "homes", "commit": "stream"},
    "no table": {"op": "insert"},
    "a long one": {"table": "x" * (1 << 20)},
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_wrong_put_command(served: Served, command: dict) -> None:
    assert refused(lambda: served.put(command, served.rows(1)))[0] == "INVALID_ARGUMENT"
    assert served.ids() == []


@pytest.mark.parametrize("metadata", [b"{", b"[]", b'{"seq":"x"}', b"x" * (1 << 20) + b"x"])
def test_wrong_batch_metadata(served: Served, metadata: bytes) -> None:
    assert refused(lambda: served.put("homes", served.rows(1), metadata=(metadata,)))[0] == "INVALID_ARGUMENT"
    assert served.ids() == []


def test_path_of_several_parts(fake: Served) -> None:
    descriptor = fl.FlightDescriptor.for_path("a", "b")
    assert refused(lambda: fake.client.get_flight_info(descriptor))[0] == "INVALID_ARGUMENT"


def test_list_flights_with_criteria(fake: Served) -> None:
    assert refused(lambda: list(fake.client.list_flights(b"x")))[0] == "INVALID_ARGUMENT"


def test_unknown_action_names_the_known(fake: Served) -> None:
    code, text = refused(lambda: fake.action("change_table", {}))
    assert code == "INVALID_ARGUMENT" and "describe_table" in text


BODIES = {
    "create_table": {"name": "t", "columns": [], "primary_key": []},
    "alter_table": {"name": "t", "steps": [{"op": "add_row"}]},
    "drop_table": {"table": "homes", "keep_seconds": 1.5},
    "recall_table": {"table": True},
    "describe_table": {"table": 7},
    "table_stats": [],
    "last_change": {},
    "maintain": {"table": "homes", "op": "explode"},
    "explain": {"table": "homes", "columns": ["town"]},
}


@pytest.mark.parametrize("action", BODIES)
def test_wrong_action_body(served: Served, action: str) -> None:
    assert refused(lambda: served.action(action, BODIES[action]))[0] in ("INVALID_ARGUMENT", "NOT_FOUND")
    assert refused(lambda: served.action(action, b"\xff"))[0] == "INVALID_ARGUMENT"
    assert refused(lambda: served.action(action, b"x" * ((1 << 20) + 1)))[0] == "INVALID_ARGUMENT"


def test_batch_over_the_limit(store: StoreService, serve: Callable[..., Served]) -> None:
    served = serve(store, ServerConfig(batch_bytes_max=10_000))
    code, text = refused(lambda: served.put("homes", served.rows(1000)))
    assert code == "INVALID_ARGUMENT" and "send smaller batches" in text
    served.put("homes", served.rows(100))
    assert len(served.ids()) == 100


def test_batch_that_is_small_on_the_wire_only(store: StoreService, serve: Callable[..., Served]) -> None:
    served = serve(store, ServerConfig(batch_bytes_max=1 << 20))
    options = fl.FlightCallOptions(write_options=pa.ipc.IpcWriteOptions(compression="zstd"))
    zeros = pa.record_batch({"id": pa.array(np.zeros(1 << 20, np.int64))})

    def send() -> None:
        writer, _ = served.client.do_put(fl.FlightDescriptor.for_path("homes"), zeros.schema, options=options)
        writer.write_batch(zeros)
        writer.close()

    assert refused(send)[0] == "INVALID_ARGUMENT"
    assert served.ids() == []


def test_compressed_batch_is_taken(served: Served) -> None:
    options = fl.FlightCallOptions(write_options=pa.ipc.IpcWriteOptions(compression="lz4"))
    writer, reader = served.client.do_put(fl.FlightDescriptor.for_path("homes"), SCHEMA, options=options)
    writer.write_batch(served.rows(100))
    writer.done_writing()
    assert json.loads(reader.read().to_pybytes())["applied"] == 100
    writer.close()


UNKNOWN_NAMES = {
    "release_pin": {"pin_id": "1-1"},
    "renew_pin": {"pin_id": "1-1"},
    "drop_pin": {"pin_id": "1-1"},
    "open_pin": {"pin_id": "1-1"},
    "compaction_abort": {"compaction_id": "1-1"},
    "compaction_renew": {"compaction_id": "1-1"},
    "move_abort": {"move": "m"},
}


@pytest.mark.parametrize(("action", "body"), UNKNOWN_NAMES.items(), ids=UNKNOWN_NAMES)
def test_what_is_not_there_cannot_be_ended(serve: Callable[..., Served], action: str, body: dict[str, str]) -> None:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as store:
        served = serve(store)
        assert refused(lambda: served.action(action, body))[0] == "NOT_FOUND"


@pytest.mark.parametrize("limit", [1 << 63, 1 << 64, 10**30])
def test_limit_beyond_63_bits(served: Served, limit: int) -> None:
    assert refused(lambda: served.get({"table": "homes", "limit": limit}))[0] == "INVALID_ARGUMENT"
    assert refused(lambda: served.action("explain", {"table": "homes", "limit": limit}))[0] == "INVALID_ARGUMENT"
    served.get({"table": "homes", "limit": (1 << 63) - 1})


def test_broken_messages_have_a_code_word(served: Served) -> None:
    """Whatever bytes of a batch's head are broken, as they come over the wire."""
    grpc = pytest.importorskip("grpc")
    batch = served.rows(3)
    message = pa.ipc.read_message(batch.serialize())
    head, body = message.metadata.to_pybytes(), message.body.to_pybytes()
    schema = pa.ipc.read_message(SCHEMA.serialize()).metadata.to_pybytes()
    descriptor = field(1, b"\x08\x01" + field(3, b"homes"))
    channel = grpc.insecure_channel(served.url.removeprefix("grpc://"))
    put = channel.stream_stream("/arrow.flight.protocol.FlightService/DoPut", bytes, bytes)
    codes = []
    for at in range(0, len(head), 3):
        broken = bytearray(head)
        broken[at] ^= 0xFF
        messages = [descriptor + field(2, schema), field(2, bytes(broken)) + field(1000, body)]
        try:
            codes += [bool(answer) for answer in put(iter(messages), timeout=10)]
        except grpc.RpcError as error:
            text = error.details()
            assert text.startswith("INVALID_ARGUMENT: "), text
            assert "\n" not in text
            codes.append(False)
    channel.close()
    assert codes.count(False) > 20
    served.put("homes", served.rows(1))


@pytest.mark.parametrize("verb", ["DoPut", "DoExchange"])
def test_a_broken_first_message_has_a_code_word(served: Served, verb: str) -> None:
    """The transport reads the schema before it calls anything of ours."""
    grpc = pytest.importorskip("grpc")
    schema = pa.ipc.read_message(SCHEMA.serialize()).metadata.to_pybytes()
    batch = pa.ipc.read_message(served.rows(3).serialize()).metadata.to_pybytes()
    broken = [b"no flatbuffer", b"\xff" * 64, b"\0", schema[: len(schema) // 2], batch]
    for at in range(0, len(schema), 7):
        broken.append(schema[:at] + bytes([schema[at] ^ 0xFF]) + schema[at + 1 :])
    path, command = b"\x08\x01" + field(3, b"homes"), b"\x08\x02" + field(2, b'{"table":"homes"}')
    descriptor = field(1, path if verb == "DoPut" else command)
    channel = grpc.insecure_channel(served.url.removeprefix("grpc://"))
    call = channel.stream_stream(f"/arrow.flight.protocol.FlightService/{verb}", bytes, bytes)
    refused = []
    for head in broken:
        try:
            list(call(iter([descriptor + field(2, head)]), timeout=10))
        except grpc.RpcError as error:
            assert error.details().startswith("INVALID_ARGUMENT: "), error.details()
            refused.append(head)
    assert refused[:5] == broken[:5]
    assert list(call(iter([descriptor + field(2, schema)]), timeout=10)) is not None, "and a sound one is taken"
    channel.close()
    served.put("homes", served.rows(1))


def field(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer that holds bytes."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)
