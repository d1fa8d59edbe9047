"""Malformed bytes for each decoder, made by atheris: an error that is ours, never a crash, a hang or another exception.

    python tests/campaigns/corruption/fuzz_bytes.py --seconds 600 --seed 0 [--only codecs]

Each target runs in a process of its own, so that a crash ends only that. What it found worth keeping is in
``build/fuzz``, and a later run goes on from there. A finding is an input that libFuzzer writes there as crash-... or
timeout-...; give it after ``--replay`` to see it again. Checksums are not in the way: bytes that a decoder gets after
one was checked are given to it directly.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import numpy as np
from atheris import Fuzz, Setup, instrument_imports  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]

with instrument_imports(include=["nyala"]):
    import pyarrow as pa

    from nyala.engine.codecs.codec import CorruptPageError
    from nyala.engine.codecs.registry import codec_by_code
    from nyala.engine.expression.parse import parse_filter
    from nyala.engine.fs.document import pack
    from nyala.engine.manifest.manifest import unpack_manifest
    from nyala.engine.record.logged_rows import unpack_changes
    from nyala.engine.record.parts import parts_of_payload
    from nyala.engine.vectors.physical import PhysicalType
    from nyala.engine.vectors.vector import BytesVector, FixedVector, Vector
    from nyala.flight_server.requests.message_size import BrokenMessageError, decoded_bytes
    from nyala.schemas.errors import StoreError
    from nyala.schemas.limits.limits import Limits
    from nyala.schemas.protocol.command import read_json, write_command
    from nyala.schemas.protocol.session import SessionDetails, SessionRequest, cells_from_json, parts_of
    from nyala.schemas.protocol.verbs import VERBS
    from nyala.schemas.rows.scan import ScanSpec

FOLDER = Path(__file__).parents[3] / "build" / "fuzz"
HANG_SECONDS = 5
INPUT_BYTES_MAX = 16_384
ROWS = 1100
OURS = (StoreError, CorruptPageError, BrokenMessageError)


@dataclass(frozen=True)
class Target:
    """A decoder, and valid bytes to begin with."""

    decode: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]


def codec_pages() -> list[bytes]:
    """Pages of all codecs, each after two bytes: the codec and the type of its cells."""
    pages = []
    for code in CODECS:
        codec = codec_by_code(code)
        for number, physical in enumerate(PhysicalType):
            if codec.supports(physical):
                is_codes = codec.name == "dictionary" and physical is PhysicalType.BYTES
                given = FixedVector(np.arange(ROWS, dtype=np.int32) % 7) if is_codes else cells(physical)
                pages.append(bytes([code, number]) + codec.encode(given, physical).tobytes())
    return pages


def cells(physical: PhysicalType) -> Vector:
    """Cells of a type that repeat and rise."""
    values = np.arange(ROWS) // 3
    if physical is PhysicalType.BYTES:
        texts = [b"city %d" % value for value in values.tolist()]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        return BytesVector(ends, np.frombuffer(b"".join(texts), np.uint8))
    if physical is PhysicalType.INT128:
        return FixedVector(np.zeros(ROWS, physical.dtype))
    return FixedVector(values.astype(physical.dtype))


CODECS = range(1, 9)


def decode_page(data: bytes) -> None:
    """Read a page in all ways."""
    if len(data) < 2:
        return
    with suppress(KeyError):
        codec, physical = codec_by_code(data[0]), list(PhysicalType)[data[1] % len(PhysicalType)]
        if codec.supports(physical):
            payload = np.frombuffer(bytearray(data[2:]), np.uint8)
            codec.check(payload, physical, ROWS)
            codec.decode(payload, physical, ROWS, 0, ROWS)
            codec.gather(payload, physical, ROWS, np.arange(ROWS)[::-7])


def decode_record(data: bytes) -> None:
    """Read the payload of a log record."""
    parts = parts_of_payload(memoryview(data), 1)
    for change in unpack_changes(parts):
        _ = change.kind
    list(parts.notes())
    list(parts.attachments())


def decode_request(data: bytes) -> None:
    """Read a request of a session."""
    first, second, rest = parts_of(data)
    asked = read_json(SessionRequest, first, "the request")
    if asked.scan is not None:
        asked.scan.checked()
    details = read_json(SessionDetails, second or b"{}", "the second line")
    if details.row is not None:
        cells_from_json(details.row)
    decode_message(rest)


def decode_message(data: bytes) -> None:
    """Measure an Arrow message, of a head with its length and a body, before anything else is done with it."""
    size = int.from_bytes(data[:4], "little")
    decoded_bytes(memoryview(data)[4 : 4 + size], memoryview(data)[4 + size :])


def decode_action(data: bytes) -> None:
    """Read the body of an action, the first byte being its number."""
    verb = list(VERBS.values())[data[0] % len(VERBS)] if data else None
    if verb is not None:
        verb.taken(data[1:])


def messages() -> list[bytes]:
    """Arrow messages, as ``decode_message`` takes them: after the four bytes that begin each."""
    batch = pa.record_batch({"k": [1, 2, 3], "s": ["a", None, "c"]})
    return [each.serialize().to_pybytes()[4:] for each in (batch, batch.schema)]


def store_files() -> tuple[bytes, list[bytes]]:
    """The body of the manifest of a store that was used a little, and the payloads of its log's records."""
    from nyala.clients.api.database import Database
    from nyala.engine.fs.document import HEADER, read
    from nyala.engine.fs.memory import MemoryFileSystem
    from nyala.engine.options import StoreOptions
    from nyala.engine.store import Store
    from nyala.engine.wal.reader import LogReader

    fs = MemoryFileSystem()
    with Database(Store.open(fs, StoreOptions(maintenance="off"))) as db:
        schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("s", pa.string())])
        table = db.create_table("t", schema, primary_key=["k"])
        for count in (1, 3, 100):
            table.upsert([{"k": number, "s": f"{number}"} for number in range(count)])
        table.delete([{"k": 1}])
    records = [bytes(record.payload) for group in LogReader(fs, "wal").groups() for record in group.records]
    return read(fs, "manifest")[HEADER.size :], records


SCAN = {"table": "t", "columns": ["k"], "where": "k > 1 and s like 'a%'", "limit": 3, "aggregate": None}
TREE = {"op": "and", "args": [{"op": "not", "arg": {"op": "is_null", "column": "b"}}]}
SQL = (b"a = 1 AND b LIKE 'x%' OR NOT (c IN (1, 2.5, NULL) AND d BETWEEN DATE '2014-01-01' AND 'z')", b'"q" IS NULL')
REQUESTS = (
    b'{"get":"t"}\n{"key":[1,"a"]}\n',
    b'{"write":{"table":"t","op":"upsert"},"columns":["k"]}\n{"row":[{"date":"2014-01-01"}],"seq":7,"more":true}\n',
    b'{"scan":' + json.dumps({"table": "t", "where": TREE}).encode() + b"}\n\n",
)
TARGETS = {
    "codecs": Target(decode_page, codec_pages),
    "manifest": Target(lambda data: unpack_manifest(pack(b"NYALAMAN", 1, data)), lambda: [b"{}", store_files()[0]]),
    "records": Target(decode_record, lambda: store_files()[1]),
    "filters": Target(lambda data: parse_filter(data.decode("utf-8", "replace"), Limits()), lambda: [*SQL]),
    "scans": Target(
        lambda data: read_json(ScanSpec, data, "the ticket").checked(),
        lambda: [json.dumps(SCAN).encode(), json.dumps({"table": "t", "where": TREE}).encode()],
    ),
    "sessions": Target(decode_request, lambda: [*REQUESTS]),
    "writes": Target(
        lambda data: write_command([], data), lambda: [b'{"table":"t","op":"insert","atomic":true,"writer":"w"}']
    ),
    "messages": Target(decode_message, messages),
    "actions": Target(
        decode_action, lambda: [bytes([number]) + b'{"table":"t","name":"n"}' for number in range(len(VERBS))]
    ),
}


def run_all(names: list[str], seconds: int, seed: int) -> int:
    """Run targets one after the other; return how many had findings."""
    failed = 0
    for name in names:
        folder = FOLDER / name
        (folder / "corpus").mkdir(parents=True, exist_ok=True)
        for number, content in enumerate(TARGETS[name].seeds()):
            (folder / "corpus" / f"seed-{number}").write_bytes(content)
        limits = [f"-max_total_time={seconds}", f"-timeout={HANG_SECONDS}", f"-max_len={INPUT_BYTES_MAX}"]
        more = [f"-seed={seed + 1}", f"-artifact_prefix={folder}/", "-rss_limit_mb=4096", "-print_final_stats=1"]
        command = [sys.executable, __file__, "--target", name, *limits, *more, str(folder / "corpus")]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        (folder / "log.txt").write_text(done.stdout)
        counts = [line.split()[-1] for line in done.stdout.splitlines() if "number_of_executed_units" in line]
        failed += done.returncode != 0
        print(
            f"{name}: {int(counts[0]) if counts else 0:,} inputs in {seconds} s, seed {seed}: "
            + (f"FAILED, see {folder}" if done.returncode else "nothing found"),
            flush=True,
        )
    return failed


def fuzz(name: str, arguments: list[str]) -> None:
    """Run one target in this process."""
    decode = TARGETS[name].decode

    def once(data: bytes) -> None:
        with suppress(*OURS):
            decode(data)

    Setup([sys.argv[0], *arguments], once)
    Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600, help="for each target (default: 600)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=TARGETS)
    parser.add_argument("--target", choices=TARGETS, help=argparse.SUPPRESS)
    parser.add_argument("--replay", type=Path, help="one input, for the target of --only")
    given, rest = parser.parse_known_args()
    if given.target:
        fuzz(given.target, rest)
    elif given.replay:
        TARGETS[given.only].decode(given.replay.read_bytes())
    else:
        sys.exit(bool(run_all([given.only] if given.only else [*TARGETS], given.seconds, given.seed)))


if __name__ == "__main__":
    main()
