"""Distributed compaction: merges a table's rowsets outside the server, in any number of processes.

The server hands rowsets out and takes back the merged ones task by task; the merging processes need only the store's
directory.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ...engine.offload.merge.run import merge_task
from ...schemas.errors import ConflictError, StoreError
from ...schemas.protocol.service import StoreService
from ...schemas.store.bucket_place import BucketPlace
from ...schemas.store.compaction import (
    CompactionBegin,
    CompactionCommit,
    CompactionDone,
    CompactionPlan,
    CompactionSummary,
    CompactionTask,
    MergedTask,
)
from ..executors.choice import executor_of
from ..executors.progress import Show, run_tasks
from .bulk_import import Directory, shared_place, store_files_at


@dataclass(frozen=True)
class MergeTask:
    """A task that ``merge`` runs outside the server; any process that sees the store's files can run it."""

    plan: CompactionPlan
    """Without the other tasks."""
    task: CompactionTask
    where: Directory | BucketPlace


def merge(task: MergeTask) -> MergedTask:
    """Merge the rowsets of a task outside the server: the function for executors. Raises as
    ``engine.offload.merge.run.merge_task``."""
    with store_files_at(task.where) as files:
        return merge_task(task.plan, task.task, files, uuid.uuid4().hex)


def bulk_compact(
    store: StoreService,
    table: str,
    *,
    tablets: Sequence[int] | None = None,
    directory: Directory | None = None,
    executor: Any = None,
    workers: int | None = None,
    replace: bool = False,
    ttl_seconds: int = 900,
    show: Show = "off",
) -> CompactionSummary:
    """Compact a table outside its server, with the tasks of an executor: see ``Table.bulk_compact``."""
    runs_on = executor_of("local" if executor is None else executor, workers)
    wanted = None if tablets is None else tuple(tablets)
    asked = CompactionBegin(table=table, tablets=wanted, replace=replace, ttl_seconds=ttl_seconds)
    plan = store.compaction_begin(asked)
    if not plan.tasks:
        return _summary(plan, [], [])
    try:
        where = shared_place(store, directory, plan.bucket, plan.tasks[0].directory, "files are merged there")
        done: list[CompactionDone] = []
        conflicts: list[str] = []
        shared = plan.model_copy(update={"tasks": ()})
        tasks = [MergeTask(shared, task, where) for task in plan.tasks]
        with _renewed(store, plan):
            for _, merged in run_tasks(runs_on, merge, tasks, _rows, f"compact {table}", show):
                commit = CompactionCommit(compaction_id=plan.compaction_id, task=merged)
                try:
                    done.append(store.compaction_commit(commit))
                except ConflictError as error:
                    conflicts.append(error.message)
        return _summary(plan, done, conflicts)
    finally:
        with suppress(StoreError):
            store.compaction_abort(plan.compaction_id)


def _rows(merged: MergedTask) -> int:
    return sum(rowset.rows for rowset in merged.rowsets)


@contextmanager
def _renewed(store: StoreService, plan: CompactionPlan) -> Iterator[None]:
    """Renew the lease while the body runs."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(plan.ttl_seconds / 3):
            with suppress(Exception):  # a user's function for tokens may raise anything
                store.compaction_renew(plan.compaction_id)

    thread = threading.Thread(target=renew, name="nyala-compaction-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _summary(plan: CompactionPlan, done: Sequence[CompactionDone], conflicts: list[str]) -> CompactionSummary:
    return CompactionSummary(
        table=plan.table,
        tasks=len(plan.tasks),
        rowsets_before=sum(each.rowsets_before for each in done),
        rowsets=sum(each.rowsets for each in done),
        rows=sum(each.rows for each in done),
        bytes_written=sum(each.bytes_written for each in done),
        bytes_freed=sum(each.bytes_freed for each in done),
        conflicts=conflicts,
    )
