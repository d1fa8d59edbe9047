"""Room: limits on unfinished work, by number, by bytes and by disk space.

Transactions, imports, pins, outside compactions and moves last until they end or their leases expire. Each kind has a
limit for the store, and a share of it for each other machine and each user. None of them uses the disk reserve: without
that, the log could not be written and flushes could not free anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...schemas.errors import StorageFullError, UnavailableError
from ...schemas.limits.share import is_over_share
from ...schemas.protocol.request import Owner, owner
from ..fs.filesystem import FileSystem
from ..options import StoreOptions

_RETRY_SECONDS = 5.0
_TABLE_SHARE = 8
"""So many tables at least may have pins that are kept."""


class Room:
    """Limits on the unfinished work of one store: its number, bytes and disk space. Thread safe: it has no state."""

    def __init__(self, fs: FileSystem, options: StoreOptions) -> None:
        self._fs = fs
        self._options = options

    def check_count(self, what: str, owners: Sequence[Owner]) -> None:
        """Check that the request that this thread serves may begin one more; there are those of ``owners``.

        Raises:
            UnavailableError: a limit is reached.
        """
        most, share = self._options.unfinished_max, self._options.peer_unfinished_share
        who, count = owner(), len(owners)
        if count >= most:
            raise UnavailableError(
                f"too many unfinished {what} ({count:,}, limit unfinished_max): finish or abort some, or wait for them "
                "to expire",
                _RETRY_SECONDS,
            )
        of_peer = sum(each.peer == who.peer for each in owners)
        if who.peer and of_peer >= most * share:
            raise UnavailableError(
                f"too many unfinished {what} from this address ({of_peer:,}, limit peer_unfinished_share * "
                "unfinished_max): finish or abort some, or wait for them to expire",
                _RETRY_SECONDS,
            )
        of_user = sum(each.user == who.user for each in owners)
        if who.user and is_over_share(most, count + 1, of_user + 1):
            raise UnavailableError(
                f"too many unfinished {what} of the user {who.user!r} ({of_user:,}; {most - count:,} of unfinished_max "
                "stay free for others): finish or abort some, or wait for them to expire",
                _RETRY_SECONDS,
            )

    def check_kept(self, of_table: int | None, of_tables: int, of_all: int) -> None:
        """Check that one more pin may be kept; there are ``of_table`` of its table (None: it is of all tables),
        ``of_tables`` of one table each and ``of_all`` of all tables.

        Raises:
            UnavailableError: a limit is reached.
        """
        most = self._options.unfinished_max
        share = max(most // _TABLE_SHARE, 1)
        if of_table is None:
            if of_all >= most:
                raise UnavailableError(
                    f"too many pins of all tables ({of_all:,}, limit unfinished_max): drop some pins",
                    _RETRY_SECONDS,
                )
        elif of_table >= share:
            raise UnavailableError(
                f"too many pins of this table ({of_table:,}, limit 1/{_TABLE_SHARE} of unfinished_max): drop some pins",
                _RETRY_SECONDS,
            )
        elif of_tables >= most:
            raise UnavailableError(
                f"too many pins of single tables ({of_tables:,}, limit unfinished_max): drop some pins",
                _RETRY_SECONDS,
            )

    def check_staged(self, more: int, held: Mapping[Owner, int]) -> None:
        """Check that the request that this thread serves may stage ``more`` bytes; there are those of all owners.

        Raises:
            UnavailableError: that is too much.
        """
        most, share = self._options.staging_bytes, self._options.peer_unfinished_share
        who, size = owner(), more + sum(held.values())
        of_peer = more + sum(bytes_held for each, bytes_held in held.items() if each.peer == who.peer)
        of_user = more + sum(bytes_held for each, bytes_held in held.items() if each.user == who.user)
        why = None
        if size > most:
            why = f"hold {size:,} bytes, more than staging_bytes allows ({most:,})"
        elif who.peer and of_peer > most * share:
            why = f"hold {of_peer:,} bytes from this address, more than peer_unfinished_share * staging_bytes"
        elif who.user and is_over_share(most, size, of_user):
            why = f"hold {of_user:,} bytes of the user {who.user!r} and leave others {most - size:,} of staging_bytes"
        if why is not None:
            raise UnavailableError(
                f"transactions that are not committed would {why}: commit or abort some, or wait for them to expire",
                _RETRY_SECONDS,
            )

    def is_over(self, pinned: int) -> bool:
        """Whether ``pinned`` bytes of files that only pins keep exceed their limit, or the disk is below its reserve.

        Raises:
            OSError: the disk does not report its free space.
        """
        if pinned > self._options.pinned_bytes:
            return True
        return pinned > 0 and self._fs.free_bytes("") < self._options.disk_reserve_bytes

    def check_disk(self, size: int, where: str = "") -> None:
        """Check that ``size`` bytes may be written.

        Raises:
            StorageFullError: the disk would not keep its reserve.
            OSError: the disk does not report its free space.
        """
        free, reserve = self._fs.free_bytes(where), self._options.disk_reserve_bytes
        if free - size < reserve:
            raise StorageFullError(
                f"the disk has {free:,} bytes left, and {reserve:,} of them (disk_reserve_bytes) are kept for "
                f"the log and for flushes: {size:,} bytes do not fit; free some space"
            )
