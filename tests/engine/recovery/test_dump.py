"""Every kind of file can be put into words, and nothing is changed by that."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from nyala.engine.fs import LocalFileSystem
from nyala.engine.recovery.dump import dump_file
from nyala.engine.recovery.verify import verify_store
from nyala.schemas.errors import CorruptionError, InvalidArgumentError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.transaction import StagedBatch
from nyala.schemas.rows.write import Stage, WriteCommand
from tests.engine.subject import Subject


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    subject = Subject(LocalFileSystem(root))
    subject.upsert(1, 2, 3)
    subject.flush()
    subject.upsert(2, v=7)
    subject.flush_deltas()
    subject.delete(1)
    subject.close()
    return root


def dumped(path: Path) -> dict[str, Any]:
    before = path.read_bytes()
    words = dump_file(path)
    assert path.read_bytes() == before
    return json.loads(json.dumps(words, default=str))


def test_the_manifest_says_which_files_make_which_table(root: Path) -> None:
    (table,) = dumped(root / "manifest")["tables"]
    assert table["name"] == "t"
    (tablet,) = table["tablets"]
    (rowset,) = tablet["rowsets"]
    on_disk = {path.name for path in (root / "tablets" / str(tablet["id"])).iterdir()}
    assert on_disk == {f"{rowset['id']}.base", f"{rowset['undo'][0]}.undo", f"{rowset['redo'][0]}.redo"}


@pytest.mark.parametrize("kind", ["base", "undo", "redo"])
def test_files_of_columns_say_what_streams_they_have(root: Path, kind: str) -> None:
    (path,) = root.glob(f"tablets/*/*.{kind}")
    words = dumped(path)
    assert words["header"]["kind"] == kind
    assert words["streams"]


def test_a_segment_of_the_log_says_what_each_record_changed(root: Path) -> None:
    words = dumped(next((root / "wal").iterdir()))
    changes = [change for group in words["groups"] for record in group["records"] for change in record["changes"]]
    assert [(change["kind"], change["rows"]) for change in changes] == [("store", 3), ("update", 1), ("delete", 1)]
    assert changes[0]["columns"] == [1, 2, 3] and changes[2]["columns"] == [1]
    lsns = [record["lsn"] for group in words["groups"] for record in group["records"]]
    assert lsns == [1, 2, 3]
    assert words["torn_bytes"] == 0


def test_staged_rows_say_whose_they_are(tmp_path: Path) -> None:
    subject = Subject(LocalFileSystem(tmp_path))
    batch = pa.record_batch({"k": [1, 2]}, schema=pa.schema([pa.field("k", pa.int64(), False)]))
    command = WriteCommand(table="t", stage=Stage(transaction="load", part="1"))
    subject.store.stage(command, [StagedBatch(batch, Operation.DELETE)])
    subject.close()
    (path,) = (tmp_path / "staging").iterdir()
    words = dumped(path)
    assert (words["transaction"], words["part"], words["rows"]) == ("load", "1", 2)
    assert words["blocks"] == [{"operation": "delete", "rows": 2, "columns": ["k"]}]
    assert verify_store(LocalFileSystem(tmp_path)).is_sound
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(content)
    assert ["staging/1.stage" in problem for problem in verify_store(LocalFileSystem(tmp_path)).problems] == [True]
    path.write_bytes(content[:-1])
    report = verify_store(LocalFileSystem(tmp_path))
    assert report.is_sound and ["staging/1.stage" in note for note in report.notes] == [True]
    assert dumped(path) == {"whole": False}


def test_what_is_no_file_of_a_store_is_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="lock is not a file of a store"):
        dump_file(root / "lock")
    (tmp_path / "1.base").write_bytes(b"too short")
    with pytest.raises(CorruptionError):
        dump_file(tmp_path / "1.base")
