"""The options of a log of slots."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlotOptions:
    """The options of a log of slots. ``ttl_seconds``: after such a silence another process may claim the log, or after
    its own if that is longer.

    ``beat_seconds``: an idle holder shows this often that it lives. ``poll_seconds``: so often somebody who wants the
    log looks whether it does. ``linger_seconds``: how long a slot waits for more records. ``patience_seconds``: after
    so long without an answer callers are told that the outcome is unknown. ``queue_bytes``: what may wait for the next
    slots. ``free_slots``, ``free_bytes``: the log is freed when so much of it is not needed. ``flush_slots``: memory is
    flushed that keeps so many slots, since the next holder reads each by a request.
    """

    ttl_seconds: float = 5.0
    beat_seconds: float = 1.5
    poll_seconds: float = 0.2
    linger_seconds: float = 0.0
    patience_seconds: float = 30.0
    queue_bytes: int = 64 << 20
    free_slots: int = 256
    free_bytes: int = 64 << 20
    flush_slots: int = 2048
