"""A check of all servers that share their tables: the servers, the tables, and if asked for, every row."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pydantic import Field

from ....schemas.cells.timestamp import Moment
from ....schemas.errors import InvalidArgumentError, StoreError
from ...cluster.servers import Servers
from ...cluster.upkeep.check import judged
from ...cluster.upkeep.check_report import ClusterReport, Fault, FaultKind
from ...cluster.upkeep.facts import told_by
from ...executors.choice import ExecutorChoice, executor_of
from ...executors.executor import Executor
from ...executors.progress import Show
from ..link import Store, StoreLink
from ..splits import snapshot_of
from .verification import TableChecksum
from .verify_job import checked

_PAUSES = (0.2, 0.5, 1.0)
"""Seconds between looks, while something seems wrong that may be a move or an alteration that has just happened."""


class ClusterCheck(ClusterReport, frozen=True):
    """The outcome of a check of all servers, and the checksums of the tables."""

    snapshot: int | None = None
    """The timestamp at which rows were read; None: they were not."""
    checksums: list[TableChecksum] = Field(default_factory=list)


def check_cluster(
    store: Store,
    *,
    checksums: bool = False,
    as_of: Moment | None = None,
    compare: ClusterCheck | None = None,
    timeout_seconds: float = 30.0,
    executor: ExecutorChoice = "local",
    workers: int | None = None,
    show: Show = "auto",
) -> ClusterCheck:
    """Run the job that checks all servers of a store: ask how they are and what they have, and return what is wrong.

    A server that does not answer within ``timeout_seconds`` is a fault, not an error of this call. With ``checksums``,
    all rows of all tables are read as well, at one snapshot, ``as_of`` or now: each tablet gets the number of its rows
    and a checksum that does not depend on their order. ``compare`` is the result of an earlier check with checksums,
    of these servers or of others with the same tables: its snapshot is read, and tables that differ are faults.

    Raises:
        InvalidArgumentError: ``as_of`` without ``checksums``, or with ``compare``.
        PermissionDeniedError, UnauthenticatedError: the caller may not ask.
        UnavailableError: the only server of the store cannot be reached.
    """
    if as_of is not None and (compare is not None or not checksums):
        raise InvalidArgumentError(
            "as_of needs checksums, and cannot be combined with compare, which reads at the time of the earlier check"
        )
    link = StoreLink.to(store)
    service = link.service
    servers: Servers | None = getattr(service, "servers", None)
    placement = None if servers is None else servers.placement
    for pause in (*_PAUSES, None):
        report = judged(told_by(service, timeout_seconds), placement)
        if pause is None or not report.may_pass:
            break
        time.sleep(pause)
    found = ClusterCheck.model_validate(report.model_dump())
    if not checksums and compare is None:
        return found
    if any(server.state in ("away", "failed") for server in found.servers):
        return _with_faults(found, [_fault("no rows were read: checksums need an answer from every server")])
    snapshot = compare.snapshot if compare else snapshot_of(service, as_of)
    if snapshot is None:
        return _with_faults(found, [_fault("the earlier check has no checksums to compare with")])
    return _with_checksums(found, link, snapshot, executor_of(executor, workers), show, compare)


def _with_checksums(
    found: ClusterCheck,
    link: StoreLink,
    snapshot: int,
    executor: Executor,
    show: Show,
    compare: ClusterCheck | None,
) -> ClusterCheck:
    wrong = {fault.table for fault in found.faults if fault.is_error}
    sums: list[TableChecksum] = []
    faults: list[Fault] = []
    for table in (each.table for each in found.tables):
        if table in wrong:
            faults.append(_fault(f"table {table!r} was not read, because of its other faults", table))
            continue
        try:
            sums.append(checked(link, table, snapshot, executor, show)[0])
        except StoreError as error:
            faults.append(_fault(f"table {table!r} could not be read: {error.code}: {error.message}", table))
    if compare:
        faults += _differences(sums, compare.checksums)
    return _with_faults(found.model_copy(update={"snapshot": snapshot, "checksums": sums}), faults)


def _differences(now: list[TableChecksum], before: list[TableChecksum]) -> Iterator[Fault]:
    known = {each.table: each for each in now}
    for old in before:
        new = known.get(old.table)
        if new is None:
            yield _fault(f"table {old.table!r} was in the earlier check, but was not read now", old.table)
        elif not new.is_same(old):
            rows = f"{old.rows:,} rows, checksum {old.checksum}; now {new.rows:,} rows, checksum {new.checksum}"
            yield _fault(f"table {old.table!r} differs as of {old.snapshot}: it had {rows}", old.table)


def _fault(what: str, table: str | None = None) -> Fault:
    return Fault(kind=FaultKind.CHECKSUM, what=what, table=table)


def _with_faults(found: ClusterCheck, more: list[Fault]) -> ClusterCheck:
    faults = sorted([*found.faults, *more], key=lambda fault: not fault.is_error)
    return found.model_copy(update={"faults": faults})
