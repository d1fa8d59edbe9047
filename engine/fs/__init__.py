"""The only access to a disk: one protocol, with a real and a crashable implementation."""

from .filesystem import FileLock, FileSystem, ReadableFile, WritableFile
from .local import LocalFileSystem
from .memory import MemoryFileSystem, PowerFailure

__all__ = [
    "FileLock",
    "FileSystem",
    "LocalFileSystem",
    "MemoryFileSystem",
    "PowerFailure",
    "ReadableFile",
    "WritableFile",
]
