"""The entry of a manifest for a rowset."""

from __future__ import annotations

from typing import Any

from pydantic import Field, NonNegativeInt, PositiveInt

from ...schemas.message import Message, new_dict


class RowsetEntry(Message, frozen=True, extra="forbid"):
    """A DiskRowSet in the manifest; ``id`` is also that of its base file."""

    id: PositiveInt
    undo: tuple[int, ...] = ()
    redo: tuple[int, ...] = ()
    columns: dict[int, int] = Field(default_factory=new_dict)
    """The base file of each column that was rewritten since; the other columns are in the rowset's own."""
    durable_lsn: NonNegativeInt
    """Changes of its rows up to this log position are in the files."""
    born: PositiveInt | None = None
    """The commit that inserted all of its rows in this file; None: UNDO has the insert of each row."""
    written_as: dict[int, int] = Field(default_factory=new_dict)
    """Of files that the bucket copied from another store: the numbers under which they were written."""

    @property
    def file_ids(self) -> list[int]:
        """The ids of its files."""
        return [self.id, *self.columns.values(), *self.undo, *self.redo]

    @property
    def file_names(self) -> list[str]:
        """The names of its files in the tablet's directory, its original base file first."""
        bases = [f"{file_id}.base" for file_id in (self.id, *sorted(set(self.columns.values())))]
        return [*bases, *(f"{file_id}.undo" for file_id in self.undo), *(f"{file_id}.redo" for file_id in self.redo)]


def without_empty(tablet: dict[str, Any]) -> dict[str, Any]:
    """Leave out each ``written_as`` that is empty, in what was made of a tablet's entry in the manifest."""
    arriving = tablet["arriving"]
    for rowset in (*tablet["rowsets"], *(arriving["rowsets"] if arriving else ())):
        if not rowset["written_as"]:
            del rowset["written_as"]
    return tablet
