"""The faults of a campaign. Each is done to a running cluster, and returns once clients go on.

A fault whose holder is gone returns after how many seconds another process acknowledged a write; others return None.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.campaigns.failover.cluster import Cluster
from tests.campaigns.failover.member import Member, wait_for_point
from tests.campaigns.failover.places import CephPlace
from tests.campaigns.failover.points import arm

_POINT_SECONDS = 8.0
"""How long a named point is waited for: not every step is taken all the time."""
_LONGEST_STOP = 12.0
"""In times of a lease: with one of 5 s, a process is stopped for 3 to 60 s."""
_OF_HOLDERS = ("records", "chunk", "beat", "commit", "manifest", "file", "delete")


@dataclass(frozen=True)
class Outcome:
    """What became of a fault: ``seconds`` until a write was acknowledged elsewhere, if one had to be."""

    what: str
    seconds: float | None = None


Fault = Callable[[Cluster], Outcome]


def kill(cluster: Cluster) -> Outcome:
    """Kill -9 the holder."""
    holder = cluster.holder
    life = holder.life
    began = time.monotonic()
    holder.kill()
    return Outcome("kill", cluster.wait_elsewhere(began, [life]))


def kill_standby(cluster: Cluster) -> Outcome:
    """Kill -9 a process that has nothing."""
    for member in cluster.standbys()[:1]:
        member.kill()
    cluster.wait_for_answers()
    return Outcome("kill of a standby")


def stop(cluster: Cluster) -> Outcome:
    """Stop the holder for a while: it comes back as a zombie."""
    holder = cluster.holder
    life, seconds = holder.life, _stop_seconds(cluster)
    began = time.monotonic()
    holder.stop()
    return Outcome("zombie", _zombie(cluster, holder, life, began, seconds))


def hand_over(cluster: Cluster) -> Outcome:
    """Ask the holder to end."""
    holder = cluster.holder
    life = holder.life
    began = time.monotonic()
    holder.ask_to_end()
    return Outcome("hand-over", cluster.wait_elsewhere(began, [life]))


def at_point(cluster: Cluster) -> Outcome:
    """Stop or kill the holder at a named point of what it asks of the bucket."""
    act, side = cluster.random.choice(["stop", "stop", "kill"]), cluster.random.choice(["before", "after"])
    point = f"{side} {cluster.random.choice(_OF_HOLDERS)}"
    holder = cluster.holder
    life = holder.life
    arm(holder.way.control, point, act)
    began = wait_for_point(holder, _POINT_SECONDS)
    if began is None:
        return Outcome("a point that was not reached")
    return _at(cluster, holder, life, began, point, act)


def at_release(cluster: Cluster) -> Outcome:
    """Stop or kill the holder while it hands over."""
    act, side = cluster.random.choice(["stop", "kill"]), cluster.random.choice(["before", "after"])
    holder = cluster.holder
    life = holder.life
    arm(holder.way.control, f"{side} release", act)
    holder.ask_to_end()
    began = wait_for_point(holder, _POINT_SECONDS)
    if began is None:
        cluster.wait_elsewhere(0, [life])
        return Outcome("a point that was not reached")
    return _at(cluster, holder, life, began, f"{side} release", act)


def at_claim(cluster: Cluster) -> Outcome:
    """Kill the holder, and stop or kill whoever claims then, around the claim or around its look above that."""
    act, side = cluster.random.choice(["stop", "kill"]), cluster.random.choice(["before", "after"])
    point = f"{side} {cluster.random.choice(['claim', 'look above'])}"
    standbys, holder = cluster.standbys(), cluster.holder
    life = holder.life
    for each in standbys[:1]:
        arm(each.way.control, point, act)
    began = time.monotonic()
    holder.kill()
    for each in standbys[:1]:
        claimant = each.life
        if wait_for_point(each, 3 * cluster.lease_seconds + _POINT_SECONDS):
            return _at(cluster, each, claimant, time.monotonic(), point, act)
    return Outcome("kill", cluster.wait_elsewhere(began, [life]))


def cut_holder_from_bucket(cluster: Cluster) -> Outcome:
    """Cut the holder from the bucket until another has the store, and a while longer."""
    holder = cluster.holder
    life = holder.life
    began = time.monotonic()
    holder.way.cut()
    try:
        seconds = cluster.wait_elsewhere(began, [life])
        time.sleep(cluster.random.uniform(0, 2))
    finally:
        holder.way.mend()
    return Outcome("holder cut from the bucket", seconds)


def cut_standby_from_bucket(cluster: Cluster) -> Outcome:
    """Cut a process that has nothing from the bucket for a while."""
    standbys = cluster.standbys()[:1]
    for member in standbys:
        member.way.cut()
    time.sleep(cluster.random.uniform(0.2, 2) * cluster.lease_seconds)
    for member in standbys:
        member.way.mend()
    cluster.wait_for_answers()
    return Outcome("standby cut from the bucket")


def cut_holder_from_clients(cluster: Cluster) -> Outcome:
    """Cut the holder from its clients for a while: it keeps the store, and nobody else may take it."""
    holder = cluster.holder
    holder.proxy.cut()
    time.sleep(cluster.random.uniform(0.2, 2) * cluster.lease_seconds)
    holder.proxy.mend()
    if cluster.random.random() < 0.5:
        holder.proxy.drop()
    cluster.wait_for_answers()
    return Outcome("holder cut from its clients")


def cut_holder_from_all(cluster: Cluster) -> Outcome:
    """Cut the holder from everything until another has the store."""
    holder = cluster.holder
    holder.proxy.cut()
    try:
        outcome = cut_holder_from_bucket(cluster)
    finally:
        holder.proxy.mend()
    return Outcome("holder cut from all", outcome.seconds)


def lose_bucket(place: CephPlace) -> Fault:
    """Return the fault that the bucket itself fails for a while, which is nobody's own."""

    def fail(cluster: Cluster) -> Outcome:
        place.fail(cluster.random.uniform(0, 2) * cluster.lease_seconds)
        cluster.wait_for_answers()
        return Outcome("kill of the OSD")

    return fail


FAULTS: dict[Fault, int] = {
    kill: 6,
    kill_standby: 1,
    stop: 4,
    hand_over: 2,
    at_point: 6,
    at_release: 1,
    at_claim: 2,
    cut_holder_from_bucket: 3,
    cut_standby_from_bucket: 1,
    cut_holder_from_clients: 1,
    cut_holder_from_all: 1,
}
"""With how often each comes, beside the others."""


def _at(cluster: Cluster, member: Member, life: tuple[int, int], began: float, point: str, act: str) -> Outcome:
    if act == "kill":
        return Outcome(f"kill at a point ({point})", cluster.wait_elsewhere(began, [life]))
    member.is_stopped = True
    seconds = _stop_seconds(cluster)
    return Outcome(f"zombie at a point ({point})", _zombie(cluster, member, life, began, seconds))


def _zombie(cluster: Cluster, member: Member, life: tuple[int, int], began: float, seconds: float) -> float | None:
    """Let a stopped process go on after ``seconds``; wait meanwhile for another to take over, if it must."""

    def go_on() -> None:
        if member.life == life:
            member.go_on()

    timer = threading.Timer(max(0.0, began + seconds - time.monotonic()), go_on)
    timer.daemon = True
    timer.start()
    cluster.wait(
        lambda: cluster.moved(began, [life]) is not None or cluster.moved(began + seconds, []) is not None,
        "neither another server nor the one that was stopped goes on",
    )
    return cluster.moved(began, [life])


def _stop_seconds(cluster: Cluster) -> float:
    return cluster.random.uniform(0.6, _LONGEST_STOP) * cluster.lease_seconds
