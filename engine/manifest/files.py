"""The names of a tablet's files. Directories and files are numbers: no user's name reaches the disk."""

from ...schemas.table.column import ColumnSchema
from ...schemas.table.table import TableSchema
from ..delta import LIVE
from ..delta.file import ColumnEncoding
from ..vectors.physical import PhysicalType, physical_of

ROOT = "tablets"
REIGN_BITS = 40
"""In a bucket, the number of a file has that of the reign in which it was made above so many bits."""


def directory(tablet_id: int) -> str:
    return f"{ROOT}/{tablet_id}"


def path(tablet_id: int, file_id: int, kind: str) -> str:
    """Return the path of a tablet's file that the manifest names by its id; ``kind`` is base, undo or redo."""
    return f"{ROOT}/{tablet_id}/{file_id}.{kind}"


def id_of(name: str) -> int:
    """Return the id of a tablet's file, as the manifest has it, from the file's name."""
    return int(name.partition(".")[0])


def reign_of(file_id: int) -> int:
    """Return the reign in which a tablet's file was made, by its id in the manifest; 0 in a directory."""
    return file_id >> REIGN_BITS


def encodings(schema: TableSchema) -> dict[int, ColumnEncoding]:
    """Return the encodings by which a tablet's files are written, those that the manifest names: one for each column,
    the system column too."""
    by_id = {column.id: _encoding(column) for column in schema.columns}
    by_id[LIVE] = ColumnEncoding(PhysicalType.BOOL, "run_length", "none")
    return by_id


def _encoding(column: ColumnSchema) -> ColumnEncoding:
    physical = physical_of(column.logical.arrow)
    nested = column.type if column.logical.is_nested else None
    return ColumnEncoding(physical, column.encoding, column.compression, column.block_rows, nested)
