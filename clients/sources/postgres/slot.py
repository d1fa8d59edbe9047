"""The publication and the replication slot of a mirror, and the lock that lets only one process use them."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ....schemas.errors import ConflictError, InvalidArgumentError, NotFoundError
from ....schemas.message import Message
from .connection import OLDEST, lost_changes

_PLAIN = re.compile(r"[^a-z0-9_]+")
_NAME_LENGTH = 40
_LOCK_SECONDS = 10.0
_LOCK_PAUSE_SECONDS = 0.25


class Memo(Message, frozen=True):
    """What a mirror has made in PostgreSQL, as the store keeps it."""

    slot: str
    """Also the name of the publication."""
    system: str
    """Identifies the PostgreSQL cluster: a slot of one that was restored elsewhere is another."""
    database: str

    @classmethod
    def new(cls, name: str, cursor: Any) -> Memo:
        """Return names that no other mirror has."""
        cursor.execute("SELECT system_identifier::text, current_database() FROM pg_control_system()")
        system, database = cursor.fetchone()
        plain = _PLAIN.sub("_", name.lower())[:_NAME_LENGTH]
        return cls(slot=f"nyala_{plain}_{secrets.token_hex(4)}", system=system, database=database)


def check_server(cursor: Any) -> None:
    """Check that PostgreSQL's server can be mirrored from.

    Raises:
        InvalidArgumentError: it is too old, does not decode its WAL, or has text in no known encoding.
    """
    cursor.execute(
        "SELECT current_setting('server_version_num')::int, current_setting('server_version'), "
        "current_setting('wal_level'), current_setting('server_encoding'), pg_is_in_recovery()"
    )
    number, version, level, encoding, is_standby = cursor.fetchone()
    if number < OLDEST:
        raise InvalidArgumentError(f"PostgreSQL {version} is too old to be mirrored: version 14 or later is needed")
    if level != "logical":
        raise InvalidArgumentError(
            f"PostgreSQL has wal_level = {level}: ALTER SYSTEM SET wal_level = logical, and restart it"
        )
    if encoding == "SQL_ASCII":
        raise InvalidArgumentError(
            "the database has the encoding SQL_ASCII, so the encoding of its text is unknown: mirror a database in UTF8"
        )
    if is_standby:
        raise InvalidArgumentError("this PostgreSQL is a standby: mirror from its primary")


def take_lock(cursor: Any, memo: Memo) -> None:
    """Lock the slot of a mirror for as long as the connection to PostgreSQL lasts. A process that was killed keeps its
    lock for a moment.

    Raises:
        ConflictError: another process has it.
    """
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        cursor.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (memo.slot,))
        if cursor.fetchone()[0]:
            return
        if time.monotonic() > until:
            raise ConflictError(
                f"another process runs this mirror (its replication slot is {memo.slot}): stop that process first, or "
                "give this process another --source"
            )
        time.sleep(_LOCK_PAUSE_SECONDS)


def create_publication(cursor: Any, memo: Memo, quoted: Sequence[str]) -> None:
    """Create PostgreSQL's publication of the tables of a mirror; the names are as SQL writes them."""
    cursor.execute(f'CREATE PUBLICATION "{memo.slot}" FOR TABLE ONLY {", ONLY ".join(quoted)}')


def drop(cursor: Any, memo: Memo) -> None:
    """Drop the slot and the publication of a mirror in PostgreSQL, if they are there."""
    cursor.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", (memo.slot,)
    )
    cursor.execute(f'DROP PUBLICATION IF EXISTS "{memo.slot}"')


def check_slot(cursor: Any, memo: Memo, after: str) -> None:
    """Check that PostgreSQL's slot still has everything after a position.

    Raises:
        NotFoundError: the slot or the publication is gone, or this is another cluster.
        ConflictError: changes are lost.
    """
    cursor.execute("SELECT system_identifier::text FROM pg_control_system()")
    if (system := cursor.fetchone()[0]) != memo.system:
        raise NotFoundError(
            f"this PostgreSQL cluster (system {system}) is not the cluster that was mirrored (system {memo.system}): "
            "correct the address, or copy the tables again with --again"
        )
    cursor.execute(
        "SELECT confirmed_flush_lsn > %s::pg_lsn, confirmed_flush_lsn::text, wal_status FROM pg_replication_slots "
        "WHERE slot_name = %s AND database = current_database()",
        (after, memo.slot),
    )
    row = cursor.fetchone()
    if row is None:
        raise NotFoundError(
            f"the replication slot {memo.slot} was dropped, so the changes since the last commit are lost; the tables "
            "are as of that commit: copy them again with --again"
        )
    is_beyond, confirmed, status = row
    if status == "lost":
        raise lost_changes(f"the slot {memo.slot} needed WAL beyond max_slot_wal_keep_size")
    if is_beyond:
        raise ConflictError(
            f"the replication slot {memo.slot} is at {confirmed}, beyond the commit at {after}, the last commit in the "
            "store: the store was restored, or another reader used the slot; copy the tables again with --again"
        )


def check_publication(cursor: Any, memo: Memo, tables: Mapping[int, str]) -> None:
    """Check that PostgreSQL tables, named by their oids, are still published. Raises NotFoundError: one is not."""
    cursor.execute(
        "SELECT prrelid FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = %s",
        (memo.slot,),
    )
    published = {row[0] for row in cursor}
    if missing := [name for oid, name in tables.items() if oid not in published]:
        raise NotFoundError(
            f"{missing[0]} was dropped, or taken out of the publication {memo.slot}: its changes no longer arrive; "
            "copy the tables again with --again, and leave out a table that was dropped"
        )
