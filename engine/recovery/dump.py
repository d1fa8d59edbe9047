"""Describes the content of any file of a store, for ``nyala dump``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...schemas.errors import InvalidArgumentError
from ..cfile.describe import describe
from ..commit.authors_file import NAME as AUTHORS
from ..commit.authors_file import unpack_authors
from ..fs import document as documents
from ..fs.encryption.key_source import NO_KEY, KeySource
from ..fs.encryption.opening import files_beside, store_files
from ..fs.filesystem import FileSystem
from ..manifest.manifest import read_manifest
from ..manifest.place import PATH
from ..record.logged_rows import unpack_changes
from ..record.parts import parts_of_payload
from ..transaction.staging.file import read_info, read_rows
from ..wal.reader import LogReader
from ..wal.records import LogRecord

_CFILES = ("base", "undo", "redo")


def dump_file(path: str | Path, key: KeySource = NO_KEY) -> dict[str, Any]:
    """Return the content of any file of a store as JSON values. Changes nothing, so the store may be running.

    Raises:
        InvalidArgumentError: the file does not belong to a store.
        CorruptionError: it is not what was written.
    """
    file = Path(path).resolve()
    kind = file.suffix.removeprefix(".")
    if file.name == PATH:
        return read_manifest(store_files(file.parent, key)).model_dump(mode="json")
    if file.name == AUTHORS:
        return _dump_authors(*files_beside(file, key))
    if file.parent.name == "wal":
        return _dump_log(store_files(file.parent.parent, key))
    if kind in _CFILES:
        return describe(*files_beside(file, key))
    if kind == "stage":
        return _dump_staged(*files_beside(file, key))
    known = "manifest, authors, wal/*, *.base, *.undo, *.redo, *.stage"
    raise InvalidArgumentError(f"{file.name} is not a file of a store; known: {known}")


def _dump_authors(fs: FileSystem, name: str) -> dict[str, Any]:
    authored = unpack_authors(documents.read(fs, name))
    commits = zip(authored.timestamps.tolist(), authored.numbers.tolist(), strict=True)
    names = "timestamp", "operation", "user", "table"
    return {"commits": [dict(zip(names, (stamp, *authored.origins[number]), strict=True)) for stamp, number in commits]}


def _dump_staged(fs: FileSystem, name: str) -> dict[str, Any]:
    found = read_info(fs, name)
    if found is None:
        return {"whole": False}
    blocks = [
        {"operation": operation.value, "rows": batch.num_rows, "columns": batch.schema.names}
        for operation, batch in read_rows(fs, name)
    ]
    return {"whole": True, **found[0].model_dump(), "rows": found[1], "blocks": blocks}


def _dump_log(fs: FileSystem) -> dict[str, Any]:
    """Return the whole log: a segment alone does not show whether it continues the previous one."""
    reader = LogReader(fs, "wal")
    groups = [
        {
            "path": group.path,
            "offset": group.offset,
            "records": [_dump_record(record) for record in group.records],
        }
        for group in reader.groups()
    ]
    segments = [{"path": segment.path, "bytes": segment.size_bytes} for segment in reader.segments]
    return {"segments": segments, "torn_bytes": reader.torn_bytes, "groups": groups}


def _dump_record(record: LogRecord) -> dict[str, Any]:
    parts = parts_of_payload(record.payload, record.lsn)
    return {
        "lsn": record.lsn,
        "timestamp": record.timestamp,
        "changes": [
            {
                "tablet": change.tablet_id,
                "kind": change.kind.name.lower(),
                "rows": change.rows.num_rows,
                "columns": change.column_ids,
            }
            for change in unpack_changes(parts)
        ],
        "attached": [
            {"tablet": attachment.tablet_id, **attachment.model_dump(exclude_none=True)}
            for _, attachment in parts.attachments()
        ],
        "notes": [
            {"table": note.table_id, "kind": note.kind.name.lower(), **json.loads(note.body)}
            for _, note in parts.notes()
        ],
    }
