"""The options of the log."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WalOptions:
    """The options of the log. ``segment_bytes``: space taken at once; smaller frees sooner, larger rolls less often.

    ``queue_bytes``: what may wait for the disk before ``reserve`` makes writers wait; it bounds memory.
    """

    segment_bytes: int = 64 << 20
    queue_bytes: int = 64 << 20
