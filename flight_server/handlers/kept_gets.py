"""KeptGets: the answers to the gets of a session that are kept, and given again without the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.flight as fl

from ...schemas.protocol.service import AnswerKeeper, KeptAnswers, RowStamp, StoreService
from ...schemas.store.description import TableDescription
from ..native.session_hook import ANSWER_BYTES_MAX, SessionHook, hook
from ..requests.calls import Call, Calls

_SECONDS = 0.1
"""So long a session is answered without the interpreter, after a request that came to it: for as long, the end of a
token or of the server is not noticed."""
_PIPELINE_SECONDS = 5.0
"""So long a client that did not wait for its answers gets them from the interpreter, which others get at in turns."""


class KeptGets:
    """The kept answers to the gets of one session. For its thread, but for ``count``."""

    def __init__(self, keeper: AnswerKeeper, answers: KeptAnswers, asker: int, own: SessionHook, call: Call) -> None:
        self._keeper = keeper
        self._answers = answers
        self._asker = asker
        self.hook = own
        self._call = call
        self._not_before = 0.0
        call.metrics.counting.add(self.count)

    def are_answered(self, now: float, is_next: bool) -> None:
        """Answer gets while the session reads, from ``now`` on if no answer ``is_next`` before theirs."""
        if self.hook.is_pipeline():
            self._not_before = now + _PIPELINE_SECONDS
        self.hook.answer_until(0 if is_next or now < self._not_before else now + _SECONDS)

    def count(self) -> None:
        """Count the gets that were answered, by any thread."""
        counts, call = self.hook.answered(), self._call
        if counts.requests:
            call.metrics.of("session_get").add_many(counts.requests, counts.nanoseconds / 1e9)
            call.received(counts.received_bytes)
            call.sent(counts.sent_bytes, counts.requests)

    def row(self, about: TableDescription, key: Sequence[Any]) -> tuple[dict[str, Any] | None, RowStamp | None]:
        """Do as ``AnswerKeeper.stamped_row``."""
        return self._keeper.stamped_row(about, key)

    def keep(self, stamp: RowStamp, question: bytes, answer: bytes) -> None:
        """Keep an answer, unless it is too long to be given again."""
        if len(answer) <= ANSWER_BYTES_MAX:
            self._answers.keep(self._asker, stamp, question, answer)

    def close(self) -> None:
        """Answer nothing more."""
        self.hook.close()
        self._call.metrics.counting.discard(self.count)
        self.count()


def kept_gets(store: StoreService, reader: fl.MetadataRecordBatchReader, calls: Calls, call: Call) -> KeptGets | None:
    """Return the kept answers to the gets of a session, for the caller to close; None if the store keeps none, or each
    request has a trace."""
    if calls.traces is not None or not isinstance(store, AnswerKeeper) or (pair := store.kept_answers()) is None:
        return None
    answers, caller = pair
    asker = answers.number_of(caller)
    own = hook(reader, answers, asker)
    return None if own is None else KeptGets(store, answers, asker, own, call)
