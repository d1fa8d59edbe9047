"""A table that a job is making, under a name of its own until all of it is there; its comment says how far it is."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, ValidationError

from ...schemas.alter import Alteration, RenameTable, SetComment, Step
from ...schemas.description import TableDescription
from ...schemas.errors import InvalidArgumentError, NotFoundError
from ...schemas.service import StoreService
from .definition import Levels, create_like

_COMMENT_MAX = 1024
_ORIGIN_MAX = 600


class _State(BaseModel):
    """The comment of the table."""

    model_config = ConfigDict(extra="forbid")

    made_from: str
    """Where its rows come from: another job may not go on with it."""
    done: list[int]
    """What the job has done, as it counts it."""
    among: str = ""
    """Stands for all that it counts: with other parts, the numbers in ``done`` mean others, and nothing is done."""


class TableUnderWay:
    """One such table. Only one run may work on it at a time."""

    def __init__(
        self,
        service: StoreService,
        name: str,
        like: TableDescription,
        origin: str,
        partition_by: Levels | None = None,
        among: str = "",
    ) -> None:
        """Create the table, or take it over as an earlier run left it; ``among`` stands for the parts of the job.

        Raises:
            InvalidArgumentError: there is one of that name that was not made for this.
        """
        self._service = service
        self._name = name
        self._origin = origin[-_ORIGIN_MAX:]
        self._among = among
        self.done: list[int] = []
        """What is done already."""
        try:
            found = service.describe_table(name)
        except NotFoundError:
            found = create_like(service, like, name, self._comment(()), partition_by)
        else:
            self.done = self._done_of(found.options.comment)
        self.table = _with_ids_of(found, like)
        """The table, with the column ids of what it is made like."""

    def note(self, done: Iterable[int]) -> None:
        """Remember what is done; if it is too much for a comment, only as much as fits."""
        kept = list(done)
        while len(self._comment(kept)) > _COMMENT_MAX:
            kept = kept[: len(kept) // 2]
        self._alter(SetComment(comment=self._comment(kept)))

    def complete(self, name: str, comment: str) -> None:
        """Give it its name and comment: now it is there."""
        self._alter(SetComment(comment=comment), RenameTable(to=name))

    def _alter(self, *steps: Step) -> None:
        self._service.alter_table(Alteration(table=self._name, steps=list(steps)))

    def _comment(self, done: Iterable[int]) -> str:
        return _State(made_from=self._origin, done=list(done), among=self._among).model_dump_json()

    def _done_of(self, comment: str) -> list[int]:
        state = _read(comment)
        if state is None or state.made_from != self._origin:
            raise InvalidArgumentError(
                f"there is a table {self._name!r} that was not made from {self._origin}: drop it, or take another name"
            )
        return state.done if state.among == self._among else []


def _read(comment: str) -> _State | None:
    try:
        return _State.model_validate(json.loads(comment))
    except (ValueError, ValidationError):
        return None


def _with_ids_of(made: TableDescription, source: TableDescription) -> TableDescription:
    ids = {column.name: column.id for column in source.columns}
    columns = [column.model_copy(update={"id": ids[column.name]}) for column in made.columns]
    return made.model_copy(update={"columns": columns})
