"""RefusingStore: the service of a store that refuses whatever a subclass does not answer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import pyarrow as pa

from ..rows.scan import ScanSpec
from ..rows.transaction import StagedBatch, StageResult
from ..rows.write import WriteCommand, WriteResult
from ..store.moving import MoveProgress
from .service import KeyReader, PendingResult, RowWriter, ScanStream
from .verb import Verb
from .verbs import Verbs


class RefusingStore(Verbs, KeyReader, RowWriter):
    """A ``StoreService`` that refuses every call, but for those that a subclass answers."""

    @abstractmethod
    def refuse(self) -> NoReturn:
        """Raise the error of a call that is not answered here."""

    def perform(self, verb: Verb, *_: Any, **__: Any) -> NoReturn:
        """See Verbs."""
        self.refuse()

    def write(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> WriteResult:
        """See StoreService."""
        self.refuse()

    def begin_write(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> PendingResult:
        """See StoreService."""
        self.refuse()

    def write_all(self, command: WriteCommand, batches: Iterable[pa.RecordBatch]) -> Iterator[WriteResult]:
        """See StoreService."""
        self.refuse()

    def stage(self, command: WriteCommand, batches: Iterable[StagedBatch]) -> StageResult:
        """See StoreService."""
        self.refuse()

    def scan(self, spec: ScanSpec) -> ScanStream:
        """See StoreService."""
        self.refuse()

    def look_up(self, table: str, keys: pa.RecordBatch) -> ScanStream:
        """See StoreService."""
        self.refuse()

    def move_tablet(
        self, table: str, tablet: int, to: str, server: str | None = None, progress: MoveProgress | None = None
    ) -> None:
        """See StoreService."""
        self.refuse()

    def close(self) -> None:
        """See StoreService."""
