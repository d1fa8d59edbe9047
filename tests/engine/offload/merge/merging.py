"""Do the tasks of a compaction in this process, as executors do in others."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from nyala.engine.offload.merge.run import merge_task
from nyala.schemas.store.compaction import CompactionBegin, CompactionCommit, CompactionPlan
from tests.engine.subject import Subject

BEGIN = CompactionBegin(table="t")


_attempts = count()


def token() -> str:
    """Return what names an attempt."""
    return f"a{next(_attempts):x}"


def merged(subject: Subject, plan: CompactionPlan) -> list[CompactionCommit]:
    """Do all tasks of a plan, as executors do in other processes."""
    tasks = [merge_task(plan, task, subject.fs, token()) for task in plan.tasks]
    return [CompactionCommit(compaction_id=plan.compaction_id, task=task) for task in tasks]


def compact(subject: Subject, meanwhile: Callable[[], Any] = lambda: None, rowset_rows: int = 9) -> None:
    """Compact outside, with something that happens between the merges and the commits."""
    plan = subject.store.compaction_begin(BEGIN).model_copy(update={"rowset_rows": rowset_rows})
    commits = merged(subject, plan)
    meanwhile()
    for each in commits:
        subject.store.compaction_commit(each)
    assert not subject.fs.list("compactions") and not subject.tablet.handed_out
