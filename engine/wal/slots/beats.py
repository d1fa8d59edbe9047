"""Beats: shows others that an idle holder lives, and keeps its lease."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....schemas.errors import UnavailableError
from ... import threads
from ..silence import OnSilence
from ..writer import LogWriter
from .slot_sink import SlotRequest, SlotSink


class Beats:
    """Shows that the holder of a log lives: a thread that makes a slot whenever none was sent for ``beat_seconds``."""

    def __init__(
        self, writer: LogWriter[Any], sink: SlotSink, beat_seconds: float, boot_seconds: Callable[[], float]
    ) -> None:
        self._writer = writer
        self._sink = sink
        self._beat_seconds = beat_seconds
        self._boot_seconds = boot_seconds
        self._stopped = threads.Event()
        self._thread = threads.Thread(target=self._run, name="nyala-beats", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Make no more beats. One that is on its way goes on."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(max(0.0, self._due_in())):
            if self._due_in() > 0:
                continue
            try:
                self._writer.wait_for(self._sink.ask(SlotRequest()), OnSilence.LASTS)
            except UnavailableError:
                return  # the log says why

    def _due_in(self) -> float:
        return self._sink.sent + self._beat_seconds - self._boot_seconds()
