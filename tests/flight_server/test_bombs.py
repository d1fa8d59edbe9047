"""Compressed batches: what they hold is known, and refused, before any of it is decompressed."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from nyala.flight_server.native import message_hook
from nyala.flight_server.native.call import _cancel
from nyala.flight_server.native.library import is_mapped
from nyala.flight_server.requests.message_size import BrokenMessageError, decoded_bytes
from nyala.flight_server.settings.config import MIB, ServerConfig
from tests.flight_server.served import Served, code_of

CODECS = ["zstd", "lz4"]


def compressed(codec: str | None) -> fl.FlightCallOptions:
    return fl.FlightCallOptions(write_options=pa.ipc.IpcWriteOptions(compression=codec))


def zeros(columns: int, column_bytes: int) -> pa.RecordBatch:
    """A batch that compresses to next to nothing."""
    column = pa.repeat(pa.scalar(0, pa.int64()), column_bytes // 8)
    return pa.record_batch({f"c{number}": column for number in range(columns)})


def put(client: fl.FlightClient, batch: pa.RecordBatch, codec: str | None) -> None:
    writer, _ = client.do_put(fl.FlightDescriptor.for_path("homes"), batch.schema, compressed(codec))
    with writer:
        writer.write_batch(batch)


def exchange(client: fl.FlightClient, batch: pa.RecordBatch, codec: str | None) -> None:
    writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(b'{"table":"homes"}'), compressed(codec))
    writer.begin(batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec))
    writer.write_batch(batch)
    writer.done_writing()
    reader.read_all()


SENDERS = {"do_put": put, "do_exchange": exchange}


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


@pytest.fixture
def process() -> Iterator[tuple[fl.FlightClient, int]]:
    command = [sys.executable, str(Path(__file__).parent / "serve_fake.py"), "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        yield fl.connect(server.stdout.readline().strip()), server.pid
        server.kill()


def test_this_pyarrow_lets_messages_be_seen_and_calls_be_ended() -> None:
    """Both reach into Arrow's C++: another pyarrow must not lose them unnoticed."""
    assert message_hook.install()
    assert _cancel() is not None


def test_memory_of_a_bomb(process: tuple[fl.FlightClient, int]) -> None:
    client, pid = process
    bomb = zeros(10, 100 * MIB)
    put(client, pa.record_batch({"id": pa.array([1], pa.int64())}), "zstd")
    before = peak_bytes(pid)
    for send in SENDERS.values():
        for codec in CODECS:
            with pytest.raises(fl.FlightError, match="batch 0 has 1,048,576,000 bytes; at most") as caught:
                send(client, bomb, codec)
            assert code_of(caught.value) == "INVALID_ARGUMENT"
    assert peak_bytes(pid) - before < 64 * MIB


@pytest.mark.parametrize("codec", [*CODECS, None])
@pytest.mark.parametrize("send", SENDERS.values(), ids=SENDERS)
def test_the_limit_is_of_decoded_bytes(fake: Served, serve: Callable[..., Served], send: Callable, codec: str) -> None:
    limited = serve(fake.store, ServerConfig(batch_bytes_max=MIB))
    with pytest.raises(fl.FlightError, match="at most 1,048,576 are allowed") as caught:
        send(limited.client, zeros(5, MIB // 4), codec)
    assert code_of(caught.value) == "INVALID_ARGUMENT"
    rows = limited.rows(1000) if send is put else limited.rows(1000).select(["id"])
    send(limited.client, rows, codec)


def test_dictionaries_count(fake: Served, serve: Callable[..., Served]) -> None:
    limited = serve(fake.store, ServerConfig(batch_bytes_max=MIB))
    words = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array(["x" * 2 * MIB]))
    with pytest.raises(fl.FlightError, match="batch 0 has 2,097") as caught:
        put(limited.client, pa.record_batch({"city": words}), "zstd")
    assert code_of(caught.value) == "INVALID_ARGUMENT"


def test_compressed_batches_share_a_budget(fake: Served, serve: Callable[..., Served]) -> None:
    served = serve(fake.store, ServerConfig(decompressed_bytes_max=MIB, wait_seconds_max=0.2))
    served.server.admission.decompressed.take(MIB)
    with pytest.raises(fl.FlightUnavailableError, match="decompressed batches use 1,048,576 of 1,048") as caught:
        put(served.client, served.rows(1000), "zstd")
    assert code_of(caught.value) == "UNAVAILABLE"
    put(served.client, served.rows(1000), None)
    waiting = threading.Timer(0.05, served.server.admission.decompressed.give_back, (MIB,))
    waiting.start()
    put(served.client, served.rows(1000), "zstd")
    assert len(served.ids()) == 1000
    assert not served.server.admission.decompressed._taken


def parts(batch: pa.RecordBatch, codec: str | None) -> tuple[bytes, bytes]:
    """The head and body of a batch's message."""
    message = pa.ipc.read_message(batch.serialize())
    if codec:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_batch(batch)
        reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
        reader.read_next_message()
        message = reader.read_next_message()
    return message.metadata.to_pybytes(), message.body.to_pybytes()


@pytest.mark.parametrize("codec", [*CODECS, None])
def test_size_of_a_message(codec: str | None) -> None:
    batch = pa.record_batch({"a": pa.array(range(1000), pa.int64()), "b": ["x" * 10] * 1000})
    head, body = parts(batch, codec)
    size, is_compressed = decoded_bytes(memoryview(head), memoryview(body))
    assert is_compressed == bool(codec)
    assert batch.nbytes <= size <= batch.nbytes + 256


def test_broken_heads_are_refused_or_measured() -> None:
    """Whatever byte of a head is changed: a number of bytes or one kind of error, never anything else."""
    batch = pa.record_batch({"a": pa.array(range(100), pa.int64()), "b": ["x" * 10] * 100})
    head, body = parts(batch, "zstd")
    refused = 0
    for at in range(len(head)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            broken = bytearray(head)
            broken[at] = value
            try:
                assert decoded_bytes(memoryview(broken), memoryview(body))[0] >= 0
            except BrokenMessageError:
                refused += 1
    assert refused
    for length in range(len(head)):
        try:
            decoded_bytes(memoryview(head[:length]), memoryview(body))
        except BrokenMessageError:
            refused += 1
    with pytest.raises(BrokenMessageError):
        decoded_bytes(memoryview(head), memoryview(body[:-64]))


def test_only_memory_that_is_there_is_touched() -> None:
    word = ctypes.c_uint64(7)
    address = ctypes.addressof(word)
    assert is_mapped(address) and is_mapped(address, writable=True)
    assert not is_mapped(0) and not is_mapped((1 << 64) - 8)
    code = ctypes.cast(ctypes.pythonapi.Py_IncRef, ctypes.c_void_p).value
    assert code and is_mapped(code) and not is_mapped(code, writable=True)
