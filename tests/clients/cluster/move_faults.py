"""The faults of servers between which tablets move. Each returns what it was, once it is over.

A process is killed, or stopped until after its lease and then goes on, or is cut off from the bucket; at any moment or
at a named point of a move; at the source, at the target, or both. Tablets move both ways all the time, so that a
process is source and target.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.cluster.servers import Servers
from nyala.clients.flight.deadline import answered_within
from nyala.clients.flight.store import FlightStore
from nyala.schemas.errors import StoreError
from tests.campaigns.failover.member import Member, wait_for_point
from tests.campaigns.failover.move_points import HAND_OVER_POINTS, MOVE_POINTS
from tests.campaigns.failover.points import arm
from tests.clients.cluster.rival import COUNT, SCHEMA, Rival, rows
from tests.clients.cluster.served_names import Served

_POINT_SECONDS = 10.0
"""How long a point is waited for: moves may wait for another fault to end."""
_LONGEST_STOP = 3.0
"""In times of a lease."""
_QUESTION_SECONDS = 4.0
_ATTEMPTS = 6
ASKED = "z"
"""The table of the faults in which a former holder is asked."""


def kill(served: Served) -> str:
    """Kill -9 who has one store, or both."""
    names = _some_names(served)
    for member in [served.holder(name) for name in names]:
        member.kill()
    return f"kill of {len(names)}"


def stop(served: Served) -> str:
    """Let who has one store, or both, stand still, and go on when others have taken over."""
    names = _some_names(served)
    members = [served.holder(name) for name in names]
    for member in members:
        member.stop()
    _go_on_later(served, members)
    return f"stop of {len(names)}"


def at_point(served: Served) -> str:
    """Kill or stop who has one store, or both, at a named point of a move."""
    act = served.random.choice(["kill", "stop"])
    points = [(served.holder(name), served.random.choice(MOVE_POINTS)) for name in _some_names(served)]
    return _at(served, points, act)


def at_hand_over(served: Served) -> str:
    """Kill or stop the source at a point around the hand-over, at which the owner changes; or also the target."""
    act = served.random.choice(["kill", "stop"])
    source, *others = served.random.sample(served.names, len(served.names))
    points = [(served.holder(source), served.random.choice(HAND_OVER_POINTS))]
    if served.random.random() < 0.3:
        points += [(served.holder(name), served.random.choice(MOVE_POINTS)) for name in others]
    return _at(served, points, act)


def hand_over(served: Served) -> str:
    """Ask who has a store to end."""
    served.holder(served.random.choice(served.names)).ask_to_end()
    return "planned stop"


def cut_from_bucket(served: Served) -> str:
    """Cut who has a store from the bucket, until another process has it."""
    member = served.holder(served.random.choice(served.names))
    member.way.cut()
    try:
        served.holder(member.name, but=[member])
        time.sleep(served.random.random())
    finally:
        member.way.mend()
    return "cut from the bucket"


def ask_former_source(served: Served) -> str:
    """A source that is cut off is asked about a move that its successor began, and handed over."""
    return _ask_former(served, is_source=True)


def ask_former_target(served: Served) -> str:
    """A target that is cut off is asked about a move that its successor prepared."""
    return _ask_former(served, is_source=False)


Fault = Callable[[Served], str]
FAULTS: dict[Fault, int] = {
    at_point: 8,
    at_hand_over: 4,
    kill: 4,
    stop: 3,
    hand_over: 1,
    cut_from_bucket: 1,
    ask_former_source: 1,
    ask_former_target: 1,
}
"""With how often each comes, beside the others."""


def make_asked(db: Database) -> None:
    """Make the table of the faults in which a former holder is asked."""
    db.create_table(ASKED, SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)]).insert(rows(0))


def check_asked(db: Database) -> None:
    """Check that all of it is there."""
    found = db.table(ASKED).scan(ordered=True).to_arrow().combine_chunks()
    assert found == rows(0).combine_chunks(), f"{found.num_rows} of {COUNT} rows"


def _some_names(served: Served) -> list[str]:
    return served.random.choice([*([name] for name in served.names), [*served.names]])


def _at(served: Served, points: Sequence[tuple[Member, str]], act: str) -> str:
    for member, point in points:
        arm(member.way.control, point, act)
    end = time.monotonic() + _POINT_SECONDS
    reached = [each for each in points if wait_for_point(each[0], max(0.0, end - time.monotonic()))]
    members = [member for member, _ in reached]
    if act == "stop":
        for member in members:
            member.is_stopped = True
        _go_on_later(served, members)
    names = ", ".join(point for _, point in reached)
    return f"{act} at a point ({names})" if reached else "a point that was not reached"


def _go_on_later(served: Served, members: Iterable[Member]) -> None:
    time.sleep(served.random.uniform(0.3, _LONGEST_STOP) * served.lease_seconds)
    for member in members:
        member.go_on()


def _ask_former(served: Served, is_source: bool) -> str:
    what = f"question to a former {'source' if is_source else 'target'}"
    db = served.connect()
    source, target = served.random.sample(list(served.names), 2)
    if not any(place.server == source for place in db.table(ASKED).tablets()):
        place = db.table(ASKED).tablets()[0]
        db.move_tablet(ASKED, place.tablet, source, server=place.server)
    former = served.holder(source if is_source else target)
    former.way.cut()
    try:
        successor = served.holder(former.name, but=[former])
        peer = served.holder(target if is_source else source)
        rival = _handed_over(served, db.table(ASKED), source, target)
        with successor.mutex:  # it stays dead meanwhile
            successor.kill()
            asked = _asked(former, peer, rival, is_source)
    except StoreError as error:  # a machine may be slow, and a lease be over
        print(f"  {error}", flush=True)
        return f"{what}: not asked"
    finally:
        former.way.mend()
    check_asked(db)
    return what if asked else f"{what}: it did not answer"


@dataclass
class _Reached:
    members: Servers


def _handed_over(served: Served, table: Table, source: str, target: str) -> Rival:
    """Hand a tablet over that its target has only prepared. The first calls may find the former holder."""
    with closing(Servers(served.placement, retries=False)) as servers:
        for attempt in range(_ATTEMPTS):
            rival = Rival(_Reached(servers), table, uuid.uuid4().hex, source, target)
            try:
                with answered_within(_QUESTION_SECONDS):  # the former holder may never answer
                    begun = rival.brought()
                    rival.target.tablets(ASKED)  # it discards what an attempt before has prepared
                    rival.target.move_prepare(begun)
                    rival.handed_over(begun)
                return rival
            except StoreError:
                if attempt == _ATTEMPTS - 1:
                    raise
    raise AssertionError("there are attempts")


def _asked(former: Member, peer: Member, rival: Rival, is_source: bool) -> bool:
    """Have the other server ask the former holder; return whether it answered."""
    with answered_within(_QUESTION_SECONDS), closing(FlightStore(peer.location, retries=False)) as server:
        try:
            if is_source:
                server.tablets(ASKED)
                return any(each.move == rival.name for each in server.moves(ASKED).arriving)
            server.move_forget(rival.name)
        except StoreError:
            return False
    return True
