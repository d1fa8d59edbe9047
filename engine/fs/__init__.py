"""The only access to a disk: one protocol, and a real, a crashable and a failing implementation of it."""

from .faulty import FaultRule, FaultyFileSystem
from .filesystem import FileLock, FileSystem, ReadableFile, WritableFile
from .local import LocalFileSystem
from .memory import MemoryFileSystem, PowerFailure

__all__ = [
    "FaultRule",
    "FaultyFileSystem",
    "FileLock",
    "FileSystem",
    "LocalFileSystem",
    "MemoryFileSystem",
    "PowerFailure",
    "ReadableFile",
    "WritableFile",
]
