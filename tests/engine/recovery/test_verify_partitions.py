"""Verify finds rows that lie in a tablet to which they do not belong."""

import pyarrow as pa
import pytest

from nyala import hash as by_hash
from nyala import range as by_range
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.manifest.manifest import ManifestFile
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition

SCHEMA = pa.schema([("s", pa.string()), ("k", pa.int64()), ("v", pa.int32())])
LEVELS = {
    "hash": [by_hash("s", "k", buckets=2)],
    "range": [by_range("k", bounds=[(None, 500), (600, None)])],
    "both": [by_hash("s", buckets=2), by_range("k", splits=[500])],
}


@pytest.mark.parametrize("what", LEVELS)
def test_rows_in_the_wrong_tablet_are_found(what: str) -> None:
    fs = MemoryFileSystem()
    with Store.open(fs, StoreOptions(maintenance="off")) as store:
        store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["s", "k"], partition_by=LEVELS[what]))
        keys = range(1000)
        rows = pa.record_batch([[f"s{key % 9}" for key in keys], keys, keys], schema=SCHEMA)
        store.write(WriteCommand(table="t"), rows)
        store.maintain("t", "flush")
    assert not verify_store(fs).problems
    manifest = ManifestFile.open(fs)
    assert manifest is not None

    def swapped(current):
        (table,) = current.tables
        first, second, *others = table.tablets
        partitions = first.partition, second.partition
        first = first.model_copy(update={"partition": partitions[1]})
        second = second.model_copy(update={"partition": partitions[0]})
        return current.model_copy(update={"tables": (table.model_copy(update={"tablets": (first, second, *others)}),)})

    manifest.commit(swapped)
    problems = verify_store(fs).problems
    assert len(problems) == 2 and all("belongs to another tablet" in str(problem) for problem in problems)
