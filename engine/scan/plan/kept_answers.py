"""StoreAnswers: the answers to gets that a store keeps, as the bytes of messages, while their rows are the newest ones.

They are looked up without the interpreter, so they are in memory that kernels read: see
`engine/kernels/reads/kept_answers.py`.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from ....schemas.protocol.service import RowStamp
from ... import threads
from ...kernels.reads.kept_answers import (
    FIELDS,
    HEAD,
    HITS,
    IS_OPEN,
    RING,
    RING_BYTES,
    SET_BYTES,
    SET_COUNT,
    SETS,
    WAYS,
    keep_answer,
)
from ...vectors.memory.huge_pages import mapped
from ...vectors.memory.memory import address_of

_ANSWER_BYTES = 512
"""So long is an answer with its question and its entry, for the number of slots."""
_ASKERS_MAX = 1 << 12


class StoreAnswers:
    """The answers to gets that a store keeps. Thread safe."""

    def __init__(self, bytes_max: int) -> None:
        """At most ``bytes_max`` of answers; the memory is taken as it is used."""
        sets = max(bytes_max // (WAYS * _ANSWER_BYTES), 1)
        self._ring = mapped(bytes_max)[: bytes_max // 8 * 8]
        self._sets = mapped(sets * SET_BYTES)[: sets * SET_BYTES]
        self._fields = np.zeros(FIELDS, np.uint64)
        places = {SETS: address_of(self._sets), SET_COUNT: sets, RING: address_of(self._ring)}
        for field, value in {**places, RING_BYTES: self._ring.nbytes, IS_OPEN: 1}.items():
            self._fields[field] = value
        self.address = address_of(self._fields)
        """Where they are, for kernels."""
        self._askers: dict[Hashable, int] = {}
        self._last_asker = 0
        self._lock = threads.Lock()

    @property
    def hits(self) -> int:
        """How many questions they have answered."""
        return int(self._fields[HITS])

    @property
    def used_bytes(self) -> int:
        """How much memory they take."""
        head = min(int(self._fields[HEAD]), self._ring.nbytes)
        return head + min(head // _ANSWER_BYTES * SET_BYTES, self._sets.nbytes)

    def number_of(self, asker: Hashable) -> int:
        """Return the number of those who get the same answers as ``asker``. It may change: ask for each session."""
        with self._lock:
            if (number := self._askers.get(asker)) is not None:
                return number
            if len(self._askers) >= _ASKERS_MAX:
                self._askers.clear()
            self._last_asker += 1
            self._askers[asker] = self._last_asker
            return self._last_asker

    def keep(self, asker: int, stamp: RowStamp, question: bytes, answer: bytes) -> None:
        """Keep an answer while its row is the newest one, unless it is too large."""
        sources = np.array(stamp[1:], np.int64)
        texts = (np.frombuffer(question, np.uint8), np.frombuffer(answer, np.uint8))
        places = np.array([part for text in texts for part in (address_of(text), text.nbytes)], np.int64)
        keep_answer(self.address, asker, stamp.moment, address_of(sources), address_of(places))

    def close(self) -> None:
        """Answer nothing any more: the store is closed."""
        self._fields[IS_OPEN] = 0
