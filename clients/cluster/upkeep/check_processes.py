"""Judges what the processes say of themselves that can have one store: the holder, and those that stand by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ....schemas.errors import StoreError
from ....schemas.store.whereabouts import Whereabouts
from .check_report import Fault, FaultKind, ProcessState

BEHIND_SECONDS = 10.0
"""A standby that has seen nothing new for so much longer than the holder wrote nothing does not see that it lives."""

Processes = Mapping[str, Whereabouts | StoreError]
"""By location."""


def process_states(told: Processes) -> list[ProcessState]:
    """Return the state of each process of a server, for a check of all servers; nothing for a server that is one
    process, and no standby."""
    found = [each for each in told.values() if isinstance(each, Whereabouts)]
    if len(told) < 2 and all(each.state == "holder" for each in found):
        return []
    newest = max((each.end for each in found if each.end is not None), default=None)
    return [_state(location, each, newest) for location, each in told.items()]


def _state(location: str, told: Whereabouts | StoreError, newest: int | None) -> ProcessState:
    if isinstance(told, StoreError):
        return ProcessState(location=location, state="away")
    behind = None if newest is None or told.end is None else newest - told.end
    return ProcessState(
        location=location,
        state=told.state,
        slots_behind=behind,
        age_seconds=told.age_seconds,
        lag_seconds=told.lag_seconds,
    )


def of_processes(server: str, who: str, told: Processes) -> Iterator[Fault]:
    """Yield the faults that a check of all servers finds in the processes of a server that answers: mostly warnings,
    since one of them has it."""
    states = process_states(told)
    idle_seconds = min((each.age_seconds or 0.0 for each in states if each.state == "holder"), default=0.0)
    holder = _newest_holder(told)
    for state in states:
        found = told[state.location]
        if isinstance(found, StoreError):
            wrong = _Wrong(FaultKind.PROCESS_AWAY, f"does not answer: {found.message}", _START)
        else:
            wrong = _of_standby(found, state, holder, idle_seconds) if found.state == "standby" else None
        if wrong:
            what = f"{who}: the process at {state.location} {wrong.what}"
            yield Fault(kind=wrong.kind, server=server, what=what, is_error=False, next_step=wrong.next_step)
    yield from _of_holders(server, who, told)


def _newest_holder(told: Processes) -> Whereabouts | None:
    """Return what the process says that has the store; of several, that with the greatest epoch."""
    holders = [each for each in told.values() if isinstance(each, Whereabouts) and each.state == "holder"]
    return max(holders, key=lambda each: each.holder.epoch if each.holder else -1, default=None)


class _Wrong(NamedTuple):
    """What is wrong with a process."""

    kind: FaultKind
    what: str
    next_step: str = ""


_START = "start the process: until then it cannot take the store over"


def _of_standby(
    found: Whereabouts, state: ProcessState, holder: Whereabouts | None, idle_seconds: float
) -> _Wrong | None:
    """Return why a process that stands by could not take the store over from ``holder``; None if it could."""
    if holder and found.name != holder.name:
        what = f"stands by for the store {found.name}, not for {holder.name or 'a store in a directory'}"
        return _Wrong(
            FaultKind.STANDBY_ELSEWHERE,
            what,
            "start this process with the store name of the other processes, or remove it from this server's locations",
        )
    if found.trouble:
        return _Wrong(FaultKind.STANDBY_TROUBLE, f"could not take the store over: {found.trouble}")
    if found.age_seconds is None:
        return _Wrong(FaultKind.STANDBY_BEHIND, "has never read the log", "check that it can reach the bucket")
    if _is_behind(state, idle_seconds):
        behind = "" if state.slots_behind is None else f", and is {state.slots_behind:,} slots behind"
        return _Wrong(
            FaultKind.STANDBY_BEHIND, f"has read nothing new from the log for {found.age_seconds:,.0f} s{behind}"
        )
    seen, held = found.holder, holder.holder if holder else None
    if seen and held and (seen.epoch, seen.process) != (held.epoch, held.process):
        other = " or ".join(seen.locations) or f"the process {seen.process}"
        what = f"reports that {other} has the store (epoch {seen.epoch})"
        return _Wrong(FaultKind.STANDBY_ELSEWHERE, what, "check that it uses the same bucket as the other processes")
    return None


def _is_behind(standby: ProcessState, idle_seconds: float) -> bool:
    """Whether a standby does not follow a holder that has written nothing for ``idle_seconds``. It may lack one slot:
    the holder may have been asked after its next one, and a long lease lets it be silent for long."""
    return standby.slots_behind != 1 and (standby.age_seconds or 0.0) - idle_seconds > BEHIND_SECONDS


def _of_holders(server: str, who: str, told: Processes) -> Iterator[Fault]:
    """Yield a fault if several processes say that they have the store, by the same or other locations."""
    holders = {
        (each.holder and each.holder.process) or location: f"{location} ({_epoch(each)})"
        for location, each in told.items()
        if isinstance(each, Whereabouts) and each.state == "holder"
    }
    if len(holders) > 1:
        yield Fault(
            kind=FaultKind.HOLDERS,
            server=server,
            what=f"{who}: {' and '.join(holders.values())} both report that they have the store",
            next_step="check that they use the same bucket and name; the process with the greater epoch has the store",
        )


def _epoch(told: Whereabouts) -> str:
    return f"epoch {told.holder.epoch}" if told.holder else "an older version"
