"""DoAction for moves of tablets between servers: what `schemas.moving` says, and the bytes of files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from ..schemas.command import TableName, read_json
from ..schemas.moving import (
    HandedOver,
    MoveBegin,
    MoveFetch,
    MoveHandOver,
    MoveName,
    MoveRead,
    MoveRound,
    MovingService,
)
from ..schemas.service import StoreService


def moves(store: StoreService, body: bytes) -> str:
    """See MovingService."""
    return _mover(store).moves(read_json(TableName, body, "the body of moves").table).model_dump_json()


def begin(store: StoreService, body: bytes) -> str:
    """See MovingService."""
    return _mover(store).move_begin(read_json(MoveBegin, body, "the body of move_begin")).model_dump_json()


def newest_round(store: StoreService, body: bytes) -> str:
    """See MovingService."""
    return _mover(store).move_round(read_json(MoveName, body, "the body of move_round").move).model_dump_json()


def read(store: StoreService, body: bytes) -> Iterator[bytes]:
    """See MovingService."""
    return _mover(store).move_read(read_json(MoveRead, body, "the body of move_read"))


def receive(store: StoreService, body: bytes) -> str:
    """See MovingService."""
    return _mover(store).move_receive(read_json(MoveRound, body, "the body of move_receive")).model_dump_json()


def fetch(store: StoreService, body: bytes) -> str:
    """See MovingService."""
    _mover(store).move_fetch(read_json(MoveFetch, body, "the body of move_fetch"))
    return "{}"


def prepare(store: StoreService, body: bytes) -> str:
    """See MovingService."""
    _mover(store).move_prepare(read_json(MoveRound, body, "the body of move_prepare"))
    return "{}"


def hand_over(store: StoreService, body: bytes) -> str:
    """See MovingService."""
    return _mover(store).move_hand_over(read_json(MoveHandOver, body, "the body of move_hand_over")).model_dump_json()


def take_over(store: StoreService, body: bytes) -> str:
    """See MovingService."""
    _mover(store).move_take_over(read_json(HandedOver, body, "the body of move_take_over"))
    return "{}"


def forget(store: StoreService, body: bytes) -> str:
    """See MovingService."""
    _mover(store).move_forget(read_json(MoveName, body, "the body of move_forget").move)
    return "{}"


def status(store: StoreService, body: bytes) -> str:
    """See MovingService."""
    return _mover(store).move_status(read_json(MoveName, body, "the body of move_status").move).model_dump_json()


def abort(store: StoreService, body: bytes) -> str:
    """See MovingService."""
    return _mover(store).move_abort(read_json(MoveName, body, "the body of move_abort").move).model_dump_json()


def _mover(store: StoreService) -> MovingService:
    return cast(MovingService, store)
