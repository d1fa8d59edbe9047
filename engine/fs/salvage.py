"""Reads what a damaged disk still returns of a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from .filesystem import ReadableFile

_PIECE_BYTES = 1 << 12


@dataclass(frozen=True, slots=True)
class Salvaged:
    """The content of a file on a damaged disk, with zeroes for what the disk does not return."""

    content: memoryview
    faults: list[tuple[int, str]] = field(default_factory=list)
    """For each damage that was met, its byte in the file on the disk, and why."""


@runtime_checkable
class SalvageableFile(Protocol):
    """A file whose content is not what stands on the disk, and which knows what to do with less."""

    def salvaged(self) -> Salvaged: ...


def salvaged(file: ReadableFile) -> Salvaged:
    """Return what can be read of a file; raises nothing."""
    if isinstance(file, SalvageableFile):
        return file.salvaged()
    content = bytearray(file.size)
    faults: list[tuple[int, str]] = []
    for first in range(0, len(content), _PIECE_BYTES):
        try:
            piece = file.pread(first, _PIECE_BYTES)
        except OSError as error:
            faults.append((first, f"it cannot be read: {error.strerror or error}"))
            continue
        content[first : first + len(piece)] = piece
    return Salvaged(memoryview(content).toreadonly(), faults)
