"""Folders that jobs read and write, local or in an object store, through pyarrow's file systems."""

from __future__ import annotations

import hashlib
import io
import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.fs as pafs
from pydantic import BaseModel, ValidationError

from ...schemas.errors import AlreadyPresentError, CorruptionError, InvalidArgumentError, NotFoundError
from ...schemas.protocol.command import explain
from ...schemas.uri import line_without, shown_uri

Model = TypeVar("Model", bound=BaseModel)

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700

Place = str | Path
"""A local path, or a URI such as ``s3://bucket/backups``."""


class Folder:
    """A folder that jobs read and write, local or in an object store; it need not exist before the first write. Can be
    pickled."""

    def __init__(self, files: pafs.FileSystem, path: str) -> None:
        self.files = files
        self.path = path

    @classmethod
    def at(cls, place: Place) -> Folder:
        """Return the folder at a path or URI.

        Raises:
            InvalidArgumentError: pyarrow knows no file system for the URI.
        """
        if isinstance(place, str) and "://" in place:
            try:
                files, path = pafs.FileSystem.from_uri(place)
            except (ValueError, OSError) as error:  # ArrowInvalid is a ValueError
                why = line_without(error, place)
                raise InvalidArgumentError(f"invalid folder or URI {shown_uri(place)!r}: {why}") from None
            return cls(files, path.rstrip("/"))
        return cls(pafs.LocalFileSystem(), str(Path(place).absolute()))

    def child(self, name: str) -> Folder:
        """Return a folder in this one."""
        return Folder(self.files, f"{self.path}/{name}")

    @property
    def is_local(self) -> bool:
        """Whether it is on a file system of this machine."""
        return isinstance(self.files, pafs.LocalFileSystem)

    @property
    def exists(self) -> bool:
        """Whether it exists; in an object store, whether it has a file."""
        return self.files.get_file_info(self.path).type == pafs.FileType.Directory

    def names(self, suffix: str = "") -> list[str]:
        """Return the sorted names of the files in it that end in ``suffix``."""
        return sorted(info.base_name for info in self._infos() if info.is_file and info.base_name.endswith(suffix))

    def folders(self) -> list[str]:
        """Return the sorted names of the folders in it."""
        return sorted(info.base_name for info in self._infos() if info.type == pafs.FileType.Directory)

    def _infos(self) -> list[pafs.FileInfo]:
        return self.files.get_file_info(pafs.FileSelector(self.path, allow_not_found=True))

    def has(self, name: str) -> bool:
        """Return whether a file of that name exists."""
        return self.files.get_file_info(f"{self.path}/{name}").is_file

    def size(self, name: str) -> int | None:
        """Return the bytes of a file, or None if it does not exist."""
        info = self.files.get_file_info(f"{self.path}/{name}")
        return info.size if info.is_file else None

    def times(self, prefix: str) -> dict[str, float]:
        """Return the modification times of the files with this prefix, in seconds by the storage's clock."""
        found = [info for info in self._infos() if info.is_file and info.base_name.startswith(prefix)]
        return {info.base_name: (info.mtime_ns or 0) / 1e9 for info in found}

    def make(self) -> None:
        """Create the folder and its parents; those that are new on this machine are for this user alone.

        Raises:
            InvalidArgumentError: a file has its name, or that of a parent.
        """
        try:
            if self.is_local:
                _make_private(Path(self.path))
            else:
                self.files.create_dir(self.path, recursive=True)
        except (FileExistsError, NotADirectoryError):
            why = "it is a file, or its path leads through a file"
            raise InvalidArgumentError(f"{self.path} cannot be a folder: {why}: give another path") from None

    def remove(self, name: str) -> None:
        """Delete a file."""
        self.files.delete_file(f"{self.path}/{name}")

    def remove_all(self) -> None:
        """Delete the folder and its contents."""
        self.files.delete_dir(self.path)

    def read(self, name: str) -> bytes:
        """Return a file's bytes.

        Raises:
            NotFoundError: the file does not exist.
        """
        try:
            with self.files.open_input_stream(f"{self.path}/{name}") as stream:
                return stream.read()
        except FileNotFoundError:
            raise NotFoundError(f"there is no file {self.path}/{name}") from None

    def read_model(self, name: str, model: type[Model]) -> Model:
        """Return the model in a JSON file.

        Raises:
            NotFoundError: the file does not exist.
            CorruptionError: its content does not match the model.
        """
        try:
            return model.model_validate_json(self.read(name))
        except ValidationError as error:
            raise CorruptionError(f"{self.path}/{name}", 0, explain(error, "the document")) from None

    def write_model(self, name: str, model: BaseModel, only_new: bool = False) -> None:
        """Write a small JSON file atomically and durably.

        Raises:
            AlreadyPresentError: with ``only_new``, if the file exists; object stores are asked just before.
        """
        data = model.model_dump_json(indent=1).encode()
        if only_new and self.has(name):
            raise AlreadyPresentError(f"the file {self.path}/{name} already exists")
        if not self.is_local:  # an object appears only when it is complete
            with self._create(name) as stream:
                stream.write(data)
            return
        under_way = f".{name}-{uuid.uuid4().hex[:8]}"
        with self._create(under_way) as stream:
            stream.write(data)
        self.sync(under_way)
        if only_new:
            self._link(under_way, name)
        else:
            self.files.move(f"{self.path}/{under_way}", f"{self.path}/{name}")
        self.sync()

    def _link(self, under_way: str, name: str) -> None:
        """Give a local file its name, unless that exists."""
        try:
            os.link(f"{self.path}/{under_way}", f"{self.path}/{name}")
        except FileExistsError:
            raise AlreadyPresentError(f"the file {self.path}/{name} already exists") from None
        except OSError:  # a file system without hard links
            self.files.move(f"{self.path}/{under_way}", f"{self.path}/{name}")
            return
        finally:
            with suppress(FileNotFoundError):
                self.remove(under_way)

    def sync(self, name: str | None = None) -> None:
        """Make a file durable, or without a name the folder's entries; object stores need no sync."""
        if self.is_local:
            handle = os.open(f"{self.path}/{name}" if name else self.path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def writer(self, name: str) -> HashedWriter:
        """Return a new file for writing."""
        return HashedWriter(self._create(name))

    def _create(self, name: str) -> Any:
        """Return a new file for writing, on this machine for this user alone: it has rows."""
        path = f"{self.path}/{name}"
        if not self.is_local:
            return self.files.open_output_stream(path)
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE), "wb")

    def __str__(self) -> str:
        return self.path


class HashedWriter(io.RawIOBase):
    """A write-only file in a job's folder, which counts its bytes and computes their SHA-256."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream
        self._hash = hashlib.sha256()
        self.bytes = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes."""
        self._stream.write(data)
        self._hash.update(data)
        length = memoryview(data).nbytes
        self.bytes += length
        return length

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self.bytes

    def close(self) -> None:
        """Close the file; an object appears only now."""
        if not self.closed:
            self._stream.close()
        super().close()

    @property
    def sha256(self) -> str:
        """The SHA-256 of all bytes written, in hexadecimal."""
        return self._hash.hexdigest()


def _make_private(path: Path) -> None:
    for directory in reversed([path, *path.parents]):
        if not directory.is_dir():
            directory.mkdir(_FOLDER_MODE, exist_ok=True)  # another task may make it, too
