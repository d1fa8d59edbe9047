"""Moves of tablets over Flight: the actions of one server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel

from ...schemas.errors import InvalidArgumentError
from ...schemas.moving import (
    HandedOver,
    MoveBegin,
    MoveFetch,
    MoveHandOver,
    MoveLacking,
    MoveName,
    MoveProgress,
    MoveRead,
    MoveRound,
    Moves,
    MoveStatus,
)


class FlightMoves:
    """See ``schemas.moving.MovingService``."""

    _action: Callable[..., bytes]
    _results: Callable[[str, BaseModel], Iterator[bytes]]

    def move_tablet(
        self, table: str, tablet: int, to: str, server: str | None = None, progress: MoveProgress | None = None
    ) -> None:
        """Not possible. Raises InvalidArgumentError."""
        raise InvalidArgumentError("this server shares its tables with no other server: tablets cannot be moved")

    def moves(self, table: str) -> Moves:
        """See MovingService."""
        return Moves.model_validate_json(self._action("moves", {"table": table}))

    def move_begin(self, asked: MoveBegin) -> MoveRound:
        """See MovingService."""
        return MoveRound.model_validate_json(self._action("move_begin", asked))

    def move_round(self, move: str) -> MoveRound:
        """See MovingService."""
        return MoveRound.model_validate_json(self._action("move_round", MoveName(move=move)))

    def move_read(self, asked: MoveRead) -> Iterator[bytes]:
        """See MovingService."""
        return self._results("move_read", asked)

    def move_receive(self, asked: MoveRound) -> MoveLacking:
        """See MovingService."""
        return MoveLacking.model_validate_json(self._action("move_receive", _whole(asked)))

    def move_fetch(self, asked: MoveFetch) -> None:
        """See MovingService."""
        self._action("move_fetch", asked)

    def move_prepare(self, asked: MoveRound) -> None:
        """See MovingService."""
        self._action("move_prepare", _whole(asked))

    def move_hand_over(self, asked: MoveHandOver) -> HandedOver:
        """See MovingService."""
        return HandedOver.model_validate_json(self._action("move_hand_over", asked))

    def move_take_over(self, asked: HandedOver) -> None:
        """See MovingService."""
        self._action("move_take_over", _whole(asked))

    def move_forget(self, move: str) -> None:
        """See MovingService."""
        self._action("move_forget", MoveName(move=move))

    def move_status(self, move: str) -> MoveStatus:
        """See MovingService."""
        return MoveStatus.model_validate_json(self._action("move_status", MoveName(move=move)))

    def move_abort(self, move: str) -> MoveStatus:
        """See MovingService."""
        return MoveStatus.model_validate_json(self._action("move_abort", MoveName(move=move)))


def _whole(model: BaseModel) -> dict[str, Any]:
    """Return all members, also those that are null: what one server told is handed to another as it is."""
    return json.loads(model.model_dump_json())
