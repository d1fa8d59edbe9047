"""HeldBatches: the batches of a scan, whose files servers keep until they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa

from ...schemas.errors import StoreError


class HeldBatches(Iterator[pa.RecordBatch]):
    """The batches of a scan. Its servers release the files when it ends early: at an error, when it is closed, or when
    nobody has it any more, whether it was begun or not. (A generator that was not begun would do nothing.) For one
    thread."""

    def __init__(
        self, batches: Iterator[pa.RecordBatch], release: Callable[[], None], ends_by_itself: bool = True
    ) -> None:
        """``ends_by_itself``: nothing is kept after the last batch. ``release`` may raise StoreError: the
        server releases the files by itself after a time."""
        self._batches = batches
        self._ends_by_itself = ends_by_itself
        self._release: Callable[[], None] | None = release

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._batches)
        except StopIteration:
            if self._ends_by_itself:
                self._release = None
            self.close()
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Read no more."""
        release, self._release = self._release, None
        if close := getattr(self._batches, "close", None):
            close()
        if release is not None:
            with suppress(StoreError):
                release()

    def __del__(self) -> None:
        self.close()
