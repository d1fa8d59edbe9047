"""Who made the files that a manifest names."""

from nyala.engine.manifest.makers import maker_of, reign_of, with_makers
from nyala.engine.manifest.manifest import Manifest, TableEntry, TabletEntry
from nyala.engine.manifest.moving_entries import ArrivingEntry
from nyala.engine.manifest.rowset_entry import RowsetEntry
from nyala.schemas.table.column import ColumnDefinition, ColumnSchema
from nyala.schemas.table.table import TableOptions, TableSchema

KEY = ColumnSchema.from_definition(1, ColumnDefinition(name="k", type="int64", nullable=False))
SCHEMA = TableSchema(columns=(KEY,), key_columns=1, next_column_id=2)


def number(reign: int) -> int:
    return (reign << 40) + 7


def manifest(**makers: str) -> Manifest:
    """Return one that names files of the reigns 1 to 5."""
    rowset = RowsetEntry(id=number(1), undo=(number(2),), redo=(number(3),), columns={1: number(4)}, durable_lsn=1)
    arriving = ArrivingEntry(
        name="m", server="b", came_as=1, number=1, tablet=9, rowsets=(RowsetEntry(id=number(5), durable_lsn=0),)
    )
    tablets = (TabletEntry(id=3, rowsets=(rowset,)), TabletEntry(id=4, elsewhere="b", arriving=arriving))
    table = TableEntry(id=2, name="t", schema_=SCHEMA, options=TableOptions(), tablets=tablets)
    found = {int(reign[1:]): maker for reign, maker in makers.items()}
    return Manifest(store_uuid="s", tables=(table,), makers=found)


def test_each_reign_of_which_a_file_is_named_has_one() -> None:
    before = manifest(r1="one", r2="two", r6="six")
    found = with_makers(before, {3: "three", 6: "six", 9: "nine"})
    assert found.makers == {1: "one", 2: "two", 3: "three", 4: "nine", 5: "nine", 9: "nine"}
    assert with_makers(found, {10: "ten"}).makers == {**dict(list(found.makers.items())[:5]), 10: "ten"}


def test_a_directory_has_none() -> None:
    assert with_makers(manifest(), {}).makers == {}
    assert reign_of("tablets/3/17.base") == 0


def test_it_is_found_by_the_path_of_a_file() -> None:
    makers = with_makers(manifest(r1="one"), {9: "nine"}).makers
    assert maker_of(makers, f"tablets/3/{number(1)}.base") == "one"
    assert maker_of(makers, f"tablets/3/{number(4)}.undo") == "nine"
    for path in (f"tablets/3/{number(8)}.base", f"staging/{number(1)}.stage", "tablets/x/y.base", "tablets/3", ""):
        assert maker_of(makers, path) == ""
