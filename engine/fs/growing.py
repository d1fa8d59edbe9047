"""Files that another process still writes, read by an object that keeps what it has read."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class GrowingFile(Protocol):
    """A ReadableFile that keeps what it has read, also of a file that another process writes."""

    def look_again(self) -> None:
        """Let later reads show what was written since. Bytes that are not whole yet are not zero."""
        ...
