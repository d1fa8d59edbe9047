"""Open a cfile and hand out its streams."""

from typing import Any, Self

import numpy as np

from ...schemas.errors import CorruptionError
from ..fs.filesystem import FileSystem
from ..fs.local import let_go
from .cache import PageCache
from .footer import Footer, check_directory, unpack_footer
from .format import MIN_FILE_BYTES, FileHeader, StreamKey
from .page import FileImage
from .stream import StreamReader
from .verify import verify_pages


class CFileReader:
    """An open cfile. Any number of threads may use it.

    The file is mapped; header, trailer, footer and the directory of pages are verified on opening, each page when it
    is first read. The mapping lives as long as the reader or one of its streams does, also after the file is
    unlinked; no file descriptor of ours stays open.
    """

    def __init__(self, image: FileImage, footer: Footer, page_cache: PageCache) -> None:
        self.path = image.path
        self.file_id = image.file_id
        self.kind = footer.kind
        self.metadata: dict[str, Any] = footer.metadata
        """What the writer was given by its caller."""
        self.size_bytes = len(image.view)
        self.footer = footer
        self.image = image
        self._cache = page_cache
        self._streams = {
            StreamKey(entry.column_id, entry.role): StreamReader(image, entry, page_cache) for entry in footer.streams
        }

    @classmethod
    def open(cls, fs: FileSystem, path: str, file_id: int, page_cache: PageCache | None = None) -> Self:
        """Open ``path``, which must be the file ``file_id``.

        Decompressed pages go to ``page_cache``, which readers share; without one the reader has its own. Raises
        CorruptionError when the file is another one or not what was written, InvalidArgumentError when it needs a
        newer build.
        """
        image, footer = _open_image(path, _map(fs, path), file_id)
        return cls(image, footer, PageCache() if page_cache is None else page_cache)

    def streams(self) -> list[StreamKey]:
        """Return the names of all streams, in the order in which they were written."""
        return list(self._streams)

    def __contains__(self, key: StreamKey) -> bool:
        return key in self._streams

    def stream(self, key: StreamKey) -> StreamReader:
        """Return the reader of one stream, always the same object. Raises KeyError when there is none."""
        return self._streams[key]

    def verify(self) -> None:
        """Check every byte of the file and decode every cell; raises CorruptionError at the first fault.

        Beyond what reading checks: all pages decode, their zone maps and NULL counts are those of their cells, and
        each byte between header and footer belongs to exactly one page. Header, trailer and footer were checked on
        opening. Trusts nothing that was verified before, and leaves the page cache alone.
        """
        verify_pages(self.image, self.footer)

    def let_go(self) -> None:
        """Give the file's pages in memory back to the operating system, until they are read again."""
        let_go(self.image.view)

    def close(self) -> None:
        """Drop the file's pages from the cache and from memory. Whoever still holds a stream may go on reading it."""
        self._cache.discard_file(self.file_id)
        self.let_go()


def file_id_of(fs: FileSystem, path: str) -> int:
    """Return the id that the file's header states. Raises CorruptionError when it is no cfile."""
    return _header(path, _map(fs, path)).file_id


def _map(fs: FileSystem, path: str) -> memoryview:
    file = fs.open(path)
    try:
        return file.view()  # outlives the file
    finally:
        file.close()


def _header(path: str, view: memoryview) -> FileHeader:
    if len(view) < MIN_FILE_BYTES:
        raise CorruptionError(path, len(view), f"a file of {len(view)} bytes is no cfile")
    return FileHeader.unpack(path, view)


def _open_image(path: str, view: memoryview, file_id: int) -> tuple[FileImage, Footer]:
    """Return the file's bytes and its footer, after checking all that is not a page."""
    header = _header(path, view)
    if header.file_id != file_id:
        raise CorruptionError(path, 0, f"this is file {header.file_id}, not file {file_id}")
    footer, footer_offset = unpack_footer(path, view, file_id)
    if footer.file_id != file_id or footer.kind != header.kind:
        raise CorruptionError(path, footer_offset, "header and footer name different files")
    check_directory(path, footer, footer_offset)
    return FileImage(path, file_id, view, np.frombuffer(view, np.uint8), footer_offset), footer
