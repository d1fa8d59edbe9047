"""Room: what work that was begun and not ended may take, by number, by bytes, and of the disk.

Transactions, imports, pins, outside compactions and moves stay until they are ended or their leases are over. Each kind
has a limit for the store, and for each other machine a share of it. None of them takes the last of the disk: that is
for the log and for flushes, without which nothing could be written, or freed.
"""

from __future__ import annotations

from ..schemas.errors import StorageFullError, UnavailableError
from .fs.filesystem import FileSystem
from .options import StoreOptions

_RETRY_SECONDS = 5.0


class Room:
    """The limits of one store. Thread safe: it remembers nothing."""

    def __init__(self, fs: FileSystem, options: StoreOptions) -> None:
        self._fs = fs
        self._options = options

    def check_count(self, what: str, count: int, of_peer: int | None) -> None:
        """Let one more be begun; ``count`` are there, ``of_peer`` of them by whoever asks, None in this process.

        Raises:
            UnavailableError: there are as many as may be.
        """
        most, share = self._options.unfinished_max, self._options.peer_unfinished_share
        if count >= most:
            raise UnavailableError(
                f"{count:,} {what} are not ended, as many as may be (unfinished_max): end some, or wait until their "
                "time is over",
                _RETRY_SECONDS,
            )
        if of_peer is not None and of_peer >= most * share:
            raise UnavailableError(
                f"{of_peer:,} {what} from this address are not ended, as many as may be (peer_unfinished_share of "
                "unfinished_max): end some, or wait until their time is over",
                _RETRY_SECONDS,
            )

    def check_staged(self, size: int, of_peer: int | None) -> None:
        """Let ``size`` bytes be staged by all transactions, ``of_peer`` by whoever asks.

        Raises:
            UnavailableError: that is too much.
        """
        most, share = self._options.staging_bytes, self._options.peer_unfinished_share
        if size > most or (of_peer is not None and of_peer > most * share):
            name = "staging_bytes" if size > most else "peer_unfinished_share of staging_bytes"
            raise UnavailableError(
                f"transactions that are not committed would hold {size:,} bytes, more than {name} allows ({most:,}): "
                "commit or abort some, or wait until their time is over",
                _RETRY_SECONDS,
            )

    def is_over(self, pinned: int) -> bool:
        """Whether ``pinned`` bytes of files that only pins need are too many: by themselves, or for a disk that has
        less left than its reserve.

        Raises:
            OSError: the disk cannot tell.
        """
        if pinned > self._options.pinned_bytes:
            return True
        return pinned > 0 and self._fs.free_bytes("") < self._options.disk_reserve_bytes

    def check_disk(self, size: int, where: str = "") -> None:
        """Let ``size`` bytes be written.

        Raises:
            StorageFullError: the disk would not keep its reserve.
            OSError: the disk cannot tell.
        """
        free, reserve = self._fs.free_bytes(where), self._options.disk_reserve_bytes
        if free - size < reserve:
            raise StorageFullError(
                f"the disk has {free:,} bytes left, and {reserve:,} of them (disk_reserve_bytes) are kept for the log "
                f"and for flushes: {size:,} more cannot be set aside"
            )
