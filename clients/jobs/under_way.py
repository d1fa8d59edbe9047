"""A table that a job makes from batches: those of another table, of a backup or of a pin.

It has a temporary name until it is complete, and its comment records the progress.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from operator import methodcaller

from pydantic import BaseModel, ValidationError

from ...schemas.cells.timestamp import microseconds_of
from ...schemas.errors import (
    AlreadyPresentError,
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    StoreError,
    UnavailableError,
)
from ...schemas.protocol.service import StoreService
from ...schemas.store.description import TableDescription
from ...schemas.table.alter import Alteration, RenameTable, SetComment, SetOption, Step
from ...schemas.table.table import QUOTAS
from ..executors.executor import Executor
from ..executors.progress import Show, run_tasks
from .definition import Levels, create_like
from .lease import LEASE_SECONDS, Heartbeat, Holder, held_by, lost
from .writing import FillTask

_COMMENT_MAX = 1024
_ORIGIN_MAX = 300
_ATTEMPTS = 8
_PAUSE_SECONDS = 0.1


def check_free(service: StoreService, name: str) -> None:
    """Raise AlreadyPresentError if a table has the name that a job's new one is to get."""
    if name in service.tables():
        raise AlreadyPresentError(f"table {name!r} already exists: give another name, or drop it first")


class _State(BaseModel, extra="forbid"):
    """The comment of the table."""

    made_from: str
    """The source of its rows: a job with another source may not resume it."""
    done: list[int]
    """The finished parts, as the job numbers them."""
    among: str = ""
    """Identifies all parts: with another division into parts, the numbers in ``done`` are void."""
    columns: str = ""
    """Identifies the columns that the source had at the beginning; empty if an earlier version began it."""
    holder: Holder | None = None
    """The run that works on it."""
    renewed: int = 0
    """Its last heartbeat, a timestamp of the store."""


class TableUnderWay:
    """A new table that a job fills, on which one run works at a time: this one, for the duration of the context.

    The comment is changed only if the table has the schema version that this run saw last. So of two runs that take it
    over only one succeeds, and a run that lost it cannot rename it.
    """

    def __init__(
        self,
        service: StoreService,
        final: str,
        name: str,
        like: TableDescription,
        origin: str,
        partition_by: Levels | None = None,
        among: str = "",
        rivals: Callable[[], Iterable[str]] = list,
    ) -> None:
        """Name the table, finally and until then; ``among`` identifies the job's division into parts.

        ``rivals`` lists the tables under way, this one too, of which a new one gives way to an earlier one.
        """
        self._service = service
        self._final = final
        self._name = name
        self._like = like
        self._origin = origin[-_ORIGIN_MAX:]
        self._partition_by = partition_by
        self._among = among
        self._columns = _digest_of(like)
        self._rivals = rivals
        self._is_new = False
        self._holder = Holder.me()
        self._beat: Heartbeat | None = None
        self._lock = threading.Lock()
        self._version = 0
        self._is_complete = False
        self.done: list[int] = []
        """The parts finished already."""

    def __enter__(self) -> TableUnderWay:
        """Create the table, or take it over from an earlier run.

        Raises:
            AlreadyPresentError: a table has the final name.
            InvalidArgumentError: a table of that name exists that is not this job's, or was begun with other columns.
            UnavailableError: another run works on it, or made a rival before; the message names it.
        """
        found = self._taken()
        # Before the check of the final name: a rival that ends in between has that name.
        if self._is_new and (refusal := self._refusal(found)):
            self._service.drop_table(self._name)
            raise refusal
        try:
            check_free(self._service, self._final)
        except AlreadyPresentError:  # from a run that has just ended
            self._service.drop_table(self._name)
            raise
        self.table = _with_ids_of(self._without_quotas(found), self._like)
        """The table, with the column ids of its model."""
        self._beat = Heartbeat(self._renew)
        return self

    def __exit__(self, *_: object) -> None:
        if self._beat:
            self._beat.stop()
        if not self._is_complete:
            with suppress(StoreError):
                self._let_go()

    def note(self, done: Iterable[int]) -> None:
        """Record finished parts; only as many as fit in a comment.

        Raises:
            ConflictError: another run has taken the table over.
        """
        with self._lock:
            self.done = list(done)
            self._alter(SetComment(comment=self._comment()))

    def check(self) -> None:
        """Raise ConflictError if another run may have taken the table over."""
        if not (self._beat and self._beat.is_alive):
            raise lost(f"table {self._name!r}")

    def filled(self, tasks: Sequence[FillTask], runner: Executor, what: str, show: Show) -> Iterator[tuple[int, int]]:
        """Run tasks that write into the table; yield (index, rows) as they end. Raises as ``check``."""
        for index, rows in run_tasks(runner, methodcaller("write"), tasks, int, what, show):
            self.check()
            yield index, rows

    def complete(self) -> None:
        """Give it its final name, and the comment of its model.

        Raises:
            ConflictError: another run has taken the table over.
            AlreadyPresentError: a table of that name exists. This one is dropped: a later run would take its rows for
                those of a run that was interrupted.
            StoreError: the same, and of several servers some have renamed this one. It is not dropped: their rows are
                in the table of that name.
        """
        self.check()
        options = self._like.options
        last = {"order_by": options.order_by, "ttl": options.ttl}
        rules = [SetOption(option=name, value=value) for name, value in last.items() if value is not None]
        quotas = ((name, getattr(options, name)) for name in QUOTAS)
        rules += [SetOption(option=name, value=value) for name, value in quotas if value != self._quota(name)]
        if self._like.cell_bytes_before:  # the rows are there
            rules.append(SetOption(option="cell_bytes_max", value=options.cell_bytes_max))
        with self._lock:
            try:
                self._alter(*rules, SetComment(comment=options.comment), RenameTable(to=self._final))
            except AlreadyPresentError:
                self._service.describe_table(self._name)  # fails where some servers have it, and others do not
                self._service.drop_table(self._name)
                raise AlreadyPresentError(
                    f"table {self._final!r} was created during the job, so the rows of the job are dropped: repeat the "
                    f"job with another name, or drop table {self._final!r} first"
                ) from None
            self._is_complete = True

    def _quota(self, name: str) -> int | None:
        return getattr(self.table.options, name)

    def _without_quotas(self, found: TableDescription) -> TableDescription:
        """Return the table without quotas, which hold from its end on: an earlier state may have had more rows, and
        what is replaced takes space. A user who may not set quotas keeps them."""
        steps = [SetOption(option=name) for name in QUOTAS if getattr(found.options, name) is not None]
        if not steps:
            return found
        try:
            return self._alter(*steps)
        except PermissionDeniedError:
            return found

    def _refusal(self, made: TableDescription) -> UnavailableError | None:
        """Return the error that names a rival made before this table; None if there is none.

        A run looks for rivals after it made its table. So of two runs the later one sees the table of the earlier one.
        """
        for name in self._rivals():
            with suppress(NotFoundError):  # it has ended
                rival = self._service.describe_table(name)
                if rival.table_id < made.table_id:
                    state = _read(rival.options.comment)
                    if state and state.holder:
                        return held_by(f"table {name!r}", state.holder)
                    return UnavailableError(
                        f"another run of the same job has just made table {name!r}: wait for that run to end, then try "
                        "again"
                    )
        return None

    def _taken(self) -> TableDescription:
        for attempt in range(_ATTEMPTS):
            try:
                found = self._service.describe_table(self._name)
                state = self._state_of(found.options.comment)
                if state.holder and not self._is_dead(state.holder, state.renewed):
                    raise held_by(f"table {self._name!r}", state.holder)
                self.done = state.done if state.among == self._among else []
                self._version = found.schema_version
                return self._alter(SetComment(comment=self._comment()))
            except NotFoundError:
                with suppress(AlreadyPresentError):
                    comment = self._fresh_state().model_dump_json()
                    create_like(self._service, self._like, self._name, comment, self._partition_by)
                    self._is_new = True
            except ConflictError:  # another run changed it in between
                time.sleep(random.uniform(0.5, 1 + attempt) * _PAUSE_SECONDS)
        raise ConflictError(f"table {self._name!r} is in use by other runs: wait for them to end, then try again")

    def _is_dead(self, holder: Holder, renewed: int) -> bool:
        silent = microseconds_of(self._service.now()) - microseconds_of(renewed)  # both by the store's clock
        return holder.is_gone or silent > LEASE_SECONDS * 1_000_000

    def _renew(self) -> None:
        with self._lock:
            if not self._is_complete:
                self._alter(SetComment(comment=self._comment()))

    def _let_go(self) -> None:
        """Release it, so that the next run can take it over at once."""
        found = self._service.describe_table(self._name)
        state = self._state_of(found.options.comment)
        if state.holder == self._holder:
            self._version = found.schema_version
            free = state.model_copy(update={"holder": None})
            self._alter(SetComment(comment=free.model_dump_json()))

    def _alter(self, *steps: Step) -> TableDescription:
        asked = Alteration(table=self._name, steps=list(steps), if_version=self._version)
        found = self._service.alter_table(asked)
        self._version = found.schema_version
        return found

    def _comment(self) -> str:
        """Return the comment: the finished parts, as many as fit, and a heartbeat."""
        progress = {"done": self.done, "holder": self._holder, "renewed": self._service.now()}
        state = self._fresh_state().model_copy(update=progress)
        while len(state.model_dump_json()) > _COMMENT_MAX and state.done:
            state.done = state.done[: len(state.done) // 2]
        return state.model_dump_json()

    def _fresh_state(self) -> _State:
        return _State(made_from=self._origin, done=[], among=self._among, columns=self._columns)

    def _state_of(self, comment: str) -> _State:
        state = _read(comment)
        if state is None or state.made_from != self._origin:
            raise InvalidArgumentError(
                f"table {self._name!r} already exists and does not come from {self._origin}: drop it, or use another "
                "name"
            )
        if state.columns and state.columns != self._columns:
            raise InvalidArgumentError(
                f"table {self._name!r} was begun with other columns: drop it and repeat the job, or use another name"
            )
        return state


def _read(comment: str) -> _State | None:
    try:
        return _State.model_validate(json.loads(comment))
    except (ValueError, ValidationError):
        return None


def _digest_of(like: TableDescription) -> str:
    columns = [[each.id, each.name, each.type] for each in like.columns]
    return blake2b(json.dumps(columns).encode(), digest_size=8).hexdigest()


def _with_ids_of(made: TableDescription, source: TableDescription) -> TableDescription:
    ids = {column.name: column.id for column in source.columns}
    columns = [column.model_copy(update={"id": ids[column.name]}) for column in made.columns]
    return made.model_copy(update={"columns": columns})
