"""A store whose errors are noted, since DataFusion makes text of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ...schemas.errors import StoreError
from ...schemas.protocol.service import ScanStream, StoreService
from ...schemas.rows.scan import ScanSpec
from ...schemas.rows.scan_plan import ScanPlan


class NotingStore:
    """The reads of a store for one SQL query."""

    def __init__(self, store: StoreService) -> None:
        self._store = store
        self.first_error: StoreError | None = None
        """What a read raised first."""

    def _note(self, error: StoreError) -> None:
        self.first_error = self.first_error or error

    def plan(self, spec: ScanSpec) -> ScanPlan:
        """See StoreService."""
        return self._noting(lambda: self._store.plan(spec))

    def scan(self, spec: ScanSpec) -> ScanStream:
        """See StoreService."""
        stream = self._noting(lambda: self._store.scan(spec))
        return replace(stream, batches=self._batches(stream))

    def _batches(self, stream: ScanStream) -> Iterator[pa.RecordBatch]:
        try:
            yield from stream.batches
        except StoreError as error:
            self._note(error)
            raise
        finally:
            stream.close()

    def _noting(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except StoreError as error:
            self._note(error)
            raise
