"""The only access to a disk: one protocol, with a real and a crashable implementation.

Also the form of small files that are written as a whole, under one checksum (`document`).
"""

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
