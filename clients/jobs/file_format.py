"""What a file of rows is written in, and how text in it is to be read."""

from __future__ import annotations

from pathlib import PurePath

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from ...schemas.errors import InvalidArgumentError

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
"""What a second suffix says, as in ``.csv.gz``."""
NOTES = ("_file", "_line", "_error", "_text")
"""Columns that a file of rejected rows has beside its own: overlooked when it is loaded."""
NULL_WORDS = ("", "NULL", "null", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA")
_BY_SUFFIX = {suffix: name for name, suffixes in FORMATS.items() for suffix in suffixes}


class ReadOptions(BaseModel):
    """How files are read; most of it is for CSV and TSV."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: str | None = None
    """One of ``FORMATS``; None: what the suffix of each file says."""
    delimiter: str | None = Field(default=None, min_length=1, max_length=1)
    """Between the cells of a line; None: a comma, or a tab in TSV."""
    quote: str = Field(default='"', max_length=1)
    """Around cells that hold a delimiter or a line end; empty: nothing is quoted."""
    header: bool = True
    """Whether the first CSV line names the columns."""
    columns: tuple[str, ...] = ()
    """The names of the columns, in the place of those in the file."""
    skip_lines: NonNegativeInt = 0
    """Lines before the header, or before the rows where there is none."""
    null_words: tuple[str, ...] = NULL_WORDS
    """What stands for NULL, unless it is quoted."""
    charset: str = "utf-8"


def format_of(path: str, options: ReadOptions) -> tuple[str, str | None]:
    """Return the format of a file and how it is compressed.

    Raises:
        InvalidArgumentError: neither the options nor the suffix name a format that there is.
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
        raise InvalidArgumentError(f"{path}: unknown suffix; known: {known}, also with .gz or .zst; else give a format")
    return name, compression
