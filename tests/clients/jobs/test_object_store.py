"""Backups in an object store that speaks S3, as a server of this process does."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from moto.server import ThreadedMotoServer

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.jobs.backup import parts
from nyala.clients.jobs.folder import Folder
from nyala.jobs import backup, checksum, export, follow, list_backups, load, restore
from nyala.schemas.errors import CorruptionError, UnavailableError
from tests.clients.jobs.job_rows import rows


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """The URI of a folder in a bucket; ``{}`` stands for its name."""
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    query = f"endpoint_override={host}:{port}&scheme=http&region=us-east-1&allow_bucket_creation=true"
    uri = f"s3://key:secret@bucket/{{}}?{query}"
    files, _ = pafs.FileSystem.from_uri(uri.format("x"))
    files.create_dir("bucket")
    yield uri
    server.stop()


def test_backups_in_a_bucket(source: Database, homes: Table, target: Database, place: str) -> None:
    root = place.format("backups")
    full = backup(source, "homes", root)
    homes.upsert(rows(range(490, 520), 2))
    increment = backup(source, "homes", root)
    assert [each.kind for each in list_backups(root)] == ["full", "increment"]
    for made, name in ((full, "then"), (increment, "now")):
        restore(target, root, "homes", at=made.until, name=name)
        assert checksum(target, name).is_same(checksum(source, "homes", as_of=made.until))


def test_a_killed_backup_and_a_lost_file(
    source: Database, homes: Table, target: Database, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = place.format("killed")
    write, written = parts._write_file, []

    def write_or_die(*given: object) -> object:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(given)
        return write(*given)  # pyright: ignore[reportArgumentType]

    with monkeypatch.context() as patch:
        patch.setattr(parts, "_write_file", write_or_die)
        with pytest.raises(KeyboardInterrupt):
            backup(source, "homes", root, workers=1)
    made = backup(source, "homes", root)
    assert made.resumed and made.files == 3
    assert restore(target, root, "homes").verified
    folder = Folder(Folder.at(root).files, made.folder)
    folder.remove(folder.names(".parquet")[0])
    with pytest.raises(CorruptionError, match="missing"):
        restore(target, root, "homes", name="again")


def test_exported_to_a_bucket_and_loaded(source: Database, homes: Table, target: Database, place: str) -> None:
    folder = place.format("export")
    assert export(source, "homes", folder).rows == 500
    target.create_table("homes", homes.schema, ["id"])
    assert load(target, "homes", folder, op="insert").applied == 500
    assert load(target, "homes", folder, op="insert").error_count == 0
    assert checksum(target, "homes").is_same(checksum(source, "homes"))


def test_backups_at_once_in_a_bucket(source: Database, homes: Table, target: Database, place: str) -> None:
    """One works, the other is told so; a bucket locks nothing, but lists what was written."""
    root = place.format("at-once")
    outcomes: list[str] = []

    def run() -> None:
        try:
            outcomes.append(backup(source, "homes", root).kind)
        except UnavailableError:
            outcomes.append("refused")

    for turn in range(3):
        homes.upsert(rows(range(turn * 9, turn * 9 + 20), turn))
        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert outcomes.count("full") == 1
    found = list_backups(root)
    assert len(found) == len(outcomes) - outcomes.count("refused") >= 3
    for made in found:
        assert restore(target, root, "homes", at=made.until, name=str(made.until)).verified
        assert checksum(target, str(made.until)).is_same(checksum(source, "homes", as_of=made.until))
    assert not [name for name in Folder.at(root).names() if name.startswith("_lease")]


def test_files_that_come_to_a_bucket_are_loaded_once(target: Database, place: str) -> None:
    prefix = place.format("in")
    target.create_table("come", pa.schema([pa.field("k", pa.int64(), False), ("city", pa.string())]), "k")
    assert follow(target, "come", prefix, once=True).loaded == 0, "the prefix need not exist"
    files, folder = pafs.FileSystem.from_uri(prefix)
    for number in range(2):
        with files.open_output_stream(f"{folder}/{number}.csv") as file:
            file.write(f"k,city\n{number},Oslo\n".encode())
        assert follow(target, "come", prefix, op="insert", once=True).loaded == 1
    assert target.table("come").count() == 2
    (first,) = target.table("nyala_files").scan(where="path LIKE '%0.csv'").to_arrow().to_pylist()
    assert (first["path"], first["state"]) == ("s3:bucket/in/0.csv", "loaded")
    assert "secret" not in str(target.table("nyala_files").scan().to_arrow().to_pylist())
