"""One who moves a tablet step by step, and the table that it is of."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

import nyala
from nyala.clients.api.table import Table
from nyala.clients.cluster.servers import Servers
from nyala.schemas.store.moving import HandedOver, MoveBegin, MoveFetch, MoveHandOver, MoveRound
from tests.clients.cluster.pair import Pair

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
COUNT = 60


def filled(pair: Pair) -> Table:
    """Return a table of two tablets, one on each of two servers."""
    table = pair.db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])
    table.insert(rows(0))
    return table


def rows(n: int) -> pa.Table:
    return pa.table([pa.array(range(COUNT)), pa.array([n] * COUNT)], schema=SCHEMA)


def check(table: Table, n: int) -> None:
    """All rows are there, and can be changed."""
    assert table.scan(ordered=True).to_arrow().combine_chunks() == rows(n).combine_chunks()
    table.upsert(rows(n + 1))
    assert table.scan(ordered=True).to_arrow().combine_chunks() == rows(n + 1).combine_chunks()


class Reached(Protocol):
    """Servers as clients reach them."""

    members: Servers


class Rival:
    """One who moves a tablet of the table from one server to the other, step by step."""

    def __init__(self, pair: Reached, table: Table, name: str, source: str = "a", target: str = "b") -> None:
        self.table = table.name
        self.source: Any = pair.members.store(source)
        self.target: Any = pair.members.store(target)
        self.names = source, target
        self.name = name
        self.tablet = next(place.tablet for place in table.tablets() if place.server == source)

    def begin(self, last: bool, again: bool = False) -> MoveBegin:
        return MoveBegin(move=self.name, table=self.table, tablet=self.tablet, to=self.names[1], again=again, last=last)

    def brought(self, again: bool = False) -> MoveRound:
        """All files are at the target."""
        source, _ = self.names
        begun = self.source.move_begin(self.begin(last=True, again=again))
        missing = self.target.move_receive(begun).names
        for file in begun.files:
            if file.name in missing:
                self.target.move_fetch(MoveFetch(move=self.name, source=source, file=file))
        return begun

    def handed_over(self, begun: MoveRound) -> HandedOver:
        asked = MoveHandOver(move=self.name, table=self.table, to=self.names[1], number=begun.number)
        return self.source.move_hand_over(asked)
