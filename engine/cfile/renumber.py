"""Copies a cfile under another number: the same pages in the same places, with checksums seeded by the new number.

So another store's file becomes one of this store's. Every page is first checked by its old number, in memory, and
written from there.
"""

from __future__ import annotations

from typing import Any

from ..fs.filesystem import FileSystem
from .footer import pack_footer
from .format import FileHeader, StreamKey
from .page import load_page
from .reader import CFileReader


def write_renumbered(reader: CFileReader, fs: FileSystem, path: str, file_id: int, metadata: dict[str, Any]) -> None:
    """Copy the cfile of ``reader`` to ``path`` as the file ``file_id``, with new ``metadata``, and sync it; the caller
    syncs the directory.

    Raises:
        CorruptionError: the file is not what was written.
    """
    reader.verify()  # including what checksums do not cover
    image, footer = reader.image, reader.footer
    pages = [(stream, page) for stream in footer.streams for page in stream.all_pages]
    file = fs.create(path)
    try:
        file.append(FileHeader(reader.kind, file_id).pack())
        for stream, entry in sorted(pages, key=lambda pair: pair[1].offset):
            page = load_page(image, str(StreamKey(stream.column_id, stream.role)), entry)
            file.pwrite(entry.offset, *page.encoded.parts(file_id, entry.offset))
        renumbered = footer.model_copy(update={"file_id": file_id, "metadata": metadata})
        file.pwrite(file.size, pack_footer(renumbered, image.footer_offset))
        file.sync()
    finally:
        file.close()
