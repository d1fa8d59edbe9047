"""Give a cfile another number: the same pages in the same places, under checksums that the new number seeds.

So a file that was written by another store becomes one of this store's. Every page is checked by its old number first.
"""

from __future__ import annotations

from typing import Any

from ..fs.filesystem import FileSystem
from .footer import pack_footer
from .format import FileHeader, seal_page
from .reader import CFileReader

_PIECES_AT_ONCE = 256


def write_renumbered(reader: CFileReader, fs: FileSystem, path: str, file_id: int, metadata: dict[str, Any]) -> None:
    """Write the file of ``reader`` to ``path`` as the file ``file_id``, with ``metadata`` in the place of its own, and
    sync it; the caller syncs the directory.

    Raises:
        CorruptionError: the file is not what was written.
    """
    reader.verify()  # pages are taken as they stand from here on
    image, footer = reader.image, reader.footer
    pages = sorted((page.offset, page.length) for stream in footer.streams for page in stream.all_pages)
    file = fs.create(path)
    try:
        pieces: list[bytes | memoryview] = [FileHeader(reader.kind, file_id).pack()]
        for offset, length in pages:
            body = image.view[offset + 4 : offset + length]
            pieces += [seal_page(file_id, offset, [body]), body]
            if len(pieces) > _PIECES_AT_ONCE:
                file.pwrite(file.size, *pieces)
                pieces = []
        renumbered = footer.model_copy(update={"file_id": file_id, "metadata": metadata})
        file.pwrite(file.size, *pieces, pack_footer(renumbered, image.footer_offset))
        file.sync()
    finally:
        file.close()
