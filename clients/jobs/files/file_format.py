"""The formats of files of rows, and how to read text in them."""

from __future__ import annotations

from pathlib import PurePath

from pydantic import BaseModel, Field, NonNegativeInt

from ....schemas.errors import InvalidArgumentError

FORMATS = {
    "parquet": (".parquet",),
    "csv": (".csv",),
    "tsv": (".tsv", ".tab"),
    "arrow": (".arrow", ".feather", ".arrows", ".ipc"),
    "jsonl": (".jsonl", ".ndjson"),
    "json": (".json",),
}
"""Formats, and the suffixes that name them."""
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
"""The compressions that a second suffix names, as in ``.csv.gz``."""
NOTES = ("_file", "_line", "_error", "_text")
"""Extra columns of a file of rejected rows; a load ignores them."""
OTHER_NOTES = tuple(f"_rejected{name}" for name in NOTES)
"""The same for a table that has one of these columns itself."""
NULL_WORDS = ("", "NULL", "null", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA")
_BY_SUFFIX = {suffix: name for name, suffixes in FORMATS.items() for suffix in suffixes}


class ReadOptions(BaseModel, frozen=True, extra="forbid"):
    """The options by which a load reads files; most of them are for CSV and TSV."""

    format: str | None = None
    """One of ``FORMATS``; None: by each file's suffix."""
    delimiter: str | None = Field(default=None, min_length=1, max_length=1)
    """Separates the cells of a line; None: a comma, or a tab in TSV."""
    quote: str = Field(default='"', max_length=1)
    """Encloses cells that contain a delimiter or a line end; empty: no quoting."""
    header: bool = True
    """Whether the first CSV line names the columns."""
    columns: tuple[str, ...] = ()
    """Column names that replace those in the file."""
    skip_lines: NonNegativeInt = 0
    """Lines before the header, or before the rows if there is no header."""
    null_words: tuple[str, ...] = NULL_WORDS
    """Words that mean NULL unless quoted."""
    charset: str = "utf-8"
    as_json: bool = False
    """In columns of text, lists and objects become text of JSON, as do numbers and booleans of JSON files."""

    @property
    def said(self) -> str:
        """The options as text, which names the numbers of a load: ``as_json`` only if it is set, as before it came."""
        return self.model_dump_json(exclude=None if self.as_json else {"as_json"})


def is_note(name: str) -> bool:
    """Return whether a column of a loaded file that the table lacks is one of a file of rejected rows."""
    return name in NOTES or name in OTHER_NOTES


def format_of(path: str, options: ReadOptions) -> tuple[str, str | None]:
    """Return the format and the compression of a file to load.

    Raises:
        InvalidArgumentError: neither the options nor the suffix name a known format.
    """
    known = ", ".join(suffix for suffixes in FORMATS.values() for suffix in suffixes)
    suffixes = [suffix.lower() for suffix in PurePath(path).suffixes]
    compression = COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    if options.format is not None:
        if options.format not in FORMATS:
            raise InvalidArgumentError(f"unknown format {options.format!r}; known: {', '.join(FORMATS)}")
        return options.format, compression
    if compression:
        suffixes.pop()
    name = _BY_SUFFIX.get(suffixes[-1]) if suffixes else None
    if name is None:
        raise InvalidArgumentError(
            f"{path}: unknown suffix; known: {known}, also with .gz or .zst; otherwise give a format (--format)"
        )
    return name, compression
