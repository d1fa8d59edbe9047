"""An encrypted store that two processes serve."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

import nyala
from nyala.engine.fs.encryption.key_source import KeySource
from nyala.engine.fs.encryption.opening import is_encrypted, store_files
from nyala.engine.recovery.verify import verify_store
from tests.clients.cluster.processes_server import ProcessesServer
from tests.doubles.encrypted import write_key

ROWS = pa.table({"id": pa.array(range(2_000), pa.int64()), "city": ["planted"] * 2_000})


def test_two_processes_share_an_encrypted_store() -> None:
    with tempfile.TemporaryDirectory() as folder:  # short: the path of a socket has few characters
        key_file = write_key(Path(folder) / "key")
        server = ProcessesServer(Path(folder) / "data")
        try:
            for number in range(2):
                server.start("--processes", "2", "--key-file", str(key_file))
                with nyala.connect(server.url) as db:
                    if not number:
                        by_id = [nyala.hash("id", buckets=4)]
                        db.create_table("t", ROWS.schema, ["id"], partition_by=by_id).insert(ROWS)
                        assert {place.server for place in db.table("t").tablets()} == {"p0", "p1"}
                    assert db.table("t").scan().to_arrow().sort_by("id").to_pydict() == ROWS.to_pydict()
                server.stop()
            for part in (server.data, server.data / "processes" / "p1"):
                files = store_files(part, KeySource(str(key_file)))
                assert is_encrypted(files) and verify_store(files).is_sound
                segments = list((part / "wal").iterdir())
                assert segments and not any(b"planted" in each.read_bytes() for each in segments)
        finally:
            if server.process:
                server.process.kill()
                server.process.communicate()
