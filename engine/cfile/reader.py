"""Opens a cfile and provides its streams."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Self

from ...schemas.errors import CorruptionError
from ..fs.far import FarFile, fetched_again
from ..fs.filesystem import FileSystem, ReadableFile
from ..mvcc.clock import elapsed_seconds
from .cache import FilePages, PageCache
from .footer import Footer, check_directory, unpack_footer
from .format import HEADER_BYTES, MIN_FILE_BYTES, FileHeader, StreamKey
from .page import FileImage, load_page
from .stream import StreamReader
from .verify import verify_pages


class CFileReader:
    """An open cfile. Thread safe.

    Header, trailer, footer and the page directory are verified on opening and kept; a page is verified whenever it is
    read from the file. The file stays open as long as the reader or one of its streams exists, even after the store has
    unlinked it.
    """

    def __init__(self, image: FileImage, footer: Footer, page_cache: PageCache) -> None:
        self.path = image.path
        self.file_id = image.file_id
        self.kind = footer.kind
        self.metadata: dict[str, Any] = footer.metadata
        """The metadata that the writer's caller gave."""
        self.size_bytes = image.file.size
        self.footer = footer
        self.image = image
        self.is_far = image.far is not None
        """Whether to read it means to ask for it over a network."""
        self._checked = -math.inf
        """When the file was there, in ``elapsed_seconds``."""
        self.pages = FilePages(page_cache, self.file_id)
        """The page cache, until this reader is closed."""
        self._streams = {
            StreamKey(entry.column_id, entry.role): StreamReader(image, entry, self.pages) for entry in footer.streams
        }

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        path: str,
        file_id: int,
        page_cache: PageCache | None = None,
        written_as: int | None = None,
    ) -> Self:
        """Open ``path``, which must be the file ``file_id``; or a copy of the file ``written_as``, byte by byte.

        Verified pages go to ``page_cache``, which readers share; without one the reader has its own. Raises
        CorruptionError if the file is another one or not what was written, InvalidArgumentError if it needs a newer
        build, UnreadableFileError if the disk does not return its bytes, OSError if it cannot be opened.
        """
        image, footer = _open_image(path, fs.open(path), file_id, written_as)
        return cls(image, footer, PageCache() if page_cache is None else page_cache)

    def streams(self) -> list[StreamKey]:
        """Return the names of all streams, in the order in which they were written."""
        return list(self._streams)

    def __contains__(self, key: StreamKey) -> bool:
        return key in self._streams

    def stream(self, key: StreamKey) -> StreamReader:
        """Return the reader of one stream, always the same object. Raises KeyError if there is none."""
        return self._streams[key]

    def verify(self) -> None:
        """Check every byte of the file and decode every cell; raises CorruptionError at the first fault.

        Beyond what reading checks: all pages decode, their zone maps and NULL counts match their cells, and each byte
        between header and footer belongs to exactly one page. Opening has checked trailer and footer. Ignores earlier
        verification, and leaves the page cache alone.
        """
        header = fetched_again(self.image.file, lambda: _header(self.image))
        if (header.file_id, header.kind) != (self.image.seed, self.kind):
            raise CorruptionError(self.path, 0, "header and footer name different files")
        verify_pages(self.image, self.footer)

    def verify_checksums(self) -> None:
        """Read every page and compare its checksum; raises CorruptionError at the first fault."""
        for stream in self.footer.streams:
            for page in stream.all_pages:
                load_page(self.image, str(StreamKey(stream.column_id, stream.role)), page)

    def fetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Begin to fetch the bytes at ranges, each (offset, length), if the file is far away."""
        if self.image.far:
            self.image.far.fetch(ranges)

    def check(self, seconds: float = 0) -> None:
        """Check that the file still exists with its full size, but not twice within ``seconds``. Raises as reading
        does."""
        now = elapsed_seconds()
        if now - self._checked >= seconds:
            self.image.check()
            self._checked = now

    def close(self) -> None:
        """Drop the file's pages from the cache. Holders of a stream may continue to read it."""
        self.pages.close()


def file_id_of(fs: FileSystem, path: str) -> int:
    """Return the id in the file's header. Raises CorruptionError if it is not a cfile."""
    file = fs.open(path)
    return fetched_again(file, lambda: _header(FileImage(path, 0, file, 0))).file_id


def _header(image: FileImage) -> FileHeader:
    _check_size(image)
    return FileHeader.unpack(image.path, image.read(0, HEADER_BYTES).data)


def _check_size(image: FileImage) -> None:
    if image.file.size < MIN_FILE_BYTES:
        raise CorruptionError(image.path, image.file.size, f"a file of {image.file.size} bytes is not a cfile")


def _open_image(path: str, file: ReadableFile, file_id: int, written_as: int | None) -> tuple[FileImage, Footer]:
    """Return a file and its footer, after checking everything except the pages.

    Of a far file the header is not read: that would be a request of its own, and the footer says the same.
    """
    image = FileImage(path, file_id, file, 0, file if isinstance(file, FarFile) else None, written_as)
    _check_size(image)
    footer, footer_offset = fetched_again(file, lambda: _footer(image))
    return replace(image, footer_offset=footer_offset), footer


def _footer(image: FileImage) -> tuple[Footer, int]:
    """Return the checked footer of a file, and its offset."""
    path, file_id = image.path, image.seed
    header = None if image.far else _header(image)
    if header and header.file_id != file_id:
        raise CorruptionError(path, 0, f"this is file {header.file_id}, not file {file_id}")
    footer, footer_offset = unpack_footer(path, image.file.size, image.read, file_id)
    if footer.file_id != file_id or (header and footer.kind != header.kind):
        raise CorruptionError(path, footer_offset, "header and footer name different files")
    check_directory(path, footer, footer_offset)
    return footer, footer_offset
