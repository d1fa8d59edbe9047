"""Lets the requests of a session be carried out as if many sessions asked at once."""

from __future__ import annotations

import pytest

from nyala.flight_server.native import session_hook
from nyala.flight_server.native.session_hook import SessionHook
from tests.flight_server.served import Served


class Crowd:
    """Counts another request as running, so that each goes to the thread that carries out all; and their answers."""

    def __init__(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: list[bytes] = []
        self.returned = 0
        threads = served.server._combining
        self._queues = [each._queue for each in (threads.gets, threads.writes, threads.scans)]
        answer = SessionHook.answer

        def note(hook: SessionHook, text: bytes | None) -> None:
            if text is None:
                self.returned += 1
            else:
                self.answers.append(text)
            answer(hook, text)

        monkeypatch.setattr(SessionHook, "answer", note)
        self.count(1)

    def count(self, more: int) -> None:
        for queue in self._queues:
            assert queue is not None
            queue._words[session_hook._RUNNING] += more
