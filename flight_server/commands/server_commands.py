"""``nyala server``: which process has a store of a bucket, and hand-overs. Each command imports what it uses."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ...schemas.errors import InvalidArgumentError, NotFoundError, UnavailableError
from ...schemas.protocol.server_verbs import ServerVerbs
from ...schemas.store.locations import DEFAULT_LOCATION, locations_of
from ...schemas.store.whereabouts import Holder, Whereabouts
from .serve_command import Json

app = typer.Typer(no_args_is_help=True, help="Show which servers have the stores of a bucket, and hand stores over.")

_POLL_SECONDS = 0.1
_ANSWER_SECONDS = 10.0
_TITLES = ("name", "location", "state", "holder", "epoch", "end of log", "age of slot", "lag")
_AWAY = "away"
_TAKEN_SECONDS = 2.0
"""How long to look who takes a store that was released: one that stands by needs some tenths of a second."""
Told = Whereabouts | UnavailableError
"""What a server says, or why it says nothing."""
Url = Annotated[
    str | None,
    typer.Option("--url", envvar="NYALA_URL", help="The URLs of servers, separated by commas."),
]
Bucket = Annotated[str | None, typer.Option("--data", help="Bucket URL: ask the servers last recorded by its stores.")]
PlacementFile = Annotated[Path | None, typer.Option("--placement", help="A placement file: ask all servers in it.")]
StoreName = Annotated[str, typer.Argument(help="The name of the store.")]
Seconds = Annotated[float, typer.Option(min=0, help="Seconds to wait until it is done.")]


@app.command("status")
def status(
    url: Url = None,
    data: Bucket = None,
    placement: PlacementFile = None,
    name: Annotated[str | None, typer.Option(help="Only this store.")] = None,
    json_output: Json = False,
) -> None:
    """Print which server has each store, and how far behind its standbys are; exit with 1 if a store has no holder."""
    if data is None and placement is None and name is not None:
        raise InvalidArgumentError(
            "--name chooses a store of a bucket or a server of a placement file: also give --data or --placement"
        )
    servers = _servers(url, data, placement, name)
    found = dict(_asked(_locations(servers)))
    if json_output:
        typer.echo(
            json.dumps(
                {each: told.model_dump() if isinstance(told, Whereabouts) else None for each, told in found.items()}
            )
        )
    else:
        from ...clients.cli.output import print_table

        print_table(_TITLES, [_row(each, told, _end(found.values(), told)) for each, told in found.items()])
        for each, told in found.items():
            if isinstance(told, UnavailableError):
                typer.echo(f"{each} does not answer: {told.message}")
    known = [told for told in found.values() if isinstance(told, Whereabouts)]
    names = {told.name for told in known} | (servers.keys() - {None})
    if names != {told.name for told in known if told.state == "holder"} or not names:
        raise typer.Exit(1)


@app.command("release")
def release(
    name: StoreName, url: Url = None, data: Bucket = None, placement: PlacementFile = None, seconds: Seconds = 60.0
) -> None:
    """Make the process that has a store hand it over to a standby, and wait until that is done."""
    where = _the_holder(_locations(_servers(url, data, placement, name)), name)
    _tell(where, lambda process: process.server_release(name))
    _wait(where, seconds, lambda told: told.state == "standby")
    holder = _next_holder(where)
    if holder is None:
        then = (
            "no process has taken the store yet: this process takes the store back after its lease_seconds, unless "
            "another process takes it first"
        )
    else:
        then = f"{', '.join(holder.locations) or holder.process} has it"
    typer.echo(f"{where} released the store {name}; {then}")


@app.command("take")
def take(
    name: StoreName,
    url: Url = None,
    force: Annotated[bool, typer.Option("--force", help="Take the store even from a holder that is running.")] = False,
    seconds: Seconds = 60.0,
) -> None:
    """Make a standby take a store over as soon as it is free, or at once with --force, and wait until that is done."""
    where, *more = _locations(_servers(url))
    if more:
        raise InvalidArgumentError("give only one URL: that of the server that is to take the store")
    _tell(where, lambda process: process.server_take(name, force))

    def why_not(told: Whereabouts) -> str | None:
        """Return that somebody else has the store, whom only ``--force`` does not wait for."""
        if force or told.holder is None:
            return None
        who = ", ".join(told.holder.locations) or told.holder.process
        way = "release it there, or repeat with --force"
        return f"{who} still has the store {name}; {where} takes it as soon as it is free: {way}"

    _wait(where, seconds, lambda told: told.state == "holder", why_not)
    typer.echo(f"{where} has the store {name}")


def _servers(
    url: str | None, data: str | None = None, placement: Path | None = None, name: str | None = None
) -> Mapping[str | None, Sequence[str]]:
    """Return the locations that options name, by the name of the store, of a bucket or a placement only of ``name`` if
    that is given; those of a URL are of whichever store these have, None."""
    if placement is not None:
        return _placed(placement, name)
    if data is not None:
        return _noted(data, name)
    return {None: locations_of(url or DEFAULT_LOCATION)}


def _noted(data: str, name: str | None) -> dict[str | None, Sequence[str]]:
    """Return the locations that the hints in a bucket name."""
    from ...engine.bucket.opening import bucket_of
    from ...engine.home.where import NAME, read_where

    bucket = bucket_of(data)
    names = [name]
    if name is None:  # lists every object of every store: a bucket lists no directories
        paths = (path.split("/") for path, _ in bucket.list("stores/"))
        names = [path[1] for path in paths if path[2:] == [NAME]]
    hints = {each: read_where(bucket, each) for each in names if each is not None}
    found: dict[str | None, Sequence[str]] = {
        each: hint.holder.locations if hint.holder else [] for each, hint in hints.items() if hint
    }
    if not _locations(found):
        raise NotFoundError(f"no server has recorded its location in {data}; give --url")
    return found


def _placed(placement: Path, name: str | None) -> dict[str | None, Sequence[str]]:
    """Return the locations of the servers of a placement file, or of the server ``name``."""
    from ...clients.cluster.placement_file import read_placement

    servers = read_placement(placement).servers
    if name is not None and name not in servers:
        raise NotFoundError(f"{placement} has no server {name!r}; known: {', '.join(servers)}")
    return {each: locations for each, locations in servers.items() if name in (None, each)}


def _locations(servers: Mapping[str | None, Sequence[str]]) -> list[str]:
    return [each for locations in servers.values() for each in locations]


def _asked(locations: Sequence[str]) -> Iterator[tuple[str, Told]]:
    """Yield what each location tells, in their order; all are asked at once."""
    with ThreadPoolExecutor(len(locations)) as threads:
        yield from zip(locations, threads.map(_where, locations), strict=True)


def _where(location: str) -> Told:
    """Return what a server tells, or why it does not answer."""
    try:
        with _process(location) as process:
            return process.whereabouts()
    except UnavailableError as error:
        return error


def _the_holder(locations: Sequence[str], name: str) -> str:
    said: list[str] = []
    is_answered = False
    for each, told in _asked(locations):
        if isinstance(told, UnavailableError):
            said.append(f"{each} does not answer ({told.message})")
            continue
        is_answered = True
        if told.name is None:
            said.append(f"{each} serves a store in a directory, which has no name")
        if told.name != name:
            continue
        if told.state == "holder":
            return each
        for other in told.holder.locations if told.holder else []:
            found = _where(other)
            if isinstance(found, Whereabouts) and found.state == "holder":
                return other
    if not is_answered:
        raise UnavailableError("; ".join(said))
    raise NotFoundError(
        "; ".join([f"none of {', '.join(locations)} has the store {name}, or knows which process has it", *said])
    )


def _next_holder(location: str) -> Holder | None:
    """Return who has the store that a process has just released, as that one sees; None if nobody does for a while."""
    until = time.monotonic() + _TAKEN_SECONDS
    while True:
        told = _where(location)
        holder = told.holder if isinstance(told, Whereabouts) else None
        if holder is not None or time.monotonic() >= until:
            return holder
        time.sleep(_POLL_SECONDS)


def _tell(location: str, what: Callable[[ServerVerbs], None]) -> None:
    with _process(location) as process:
        what(process)


@contextmanager
def _process(location: str) -> Iterator[ServerVerbs]:
    """Talk to the process at a location, whether it has the store or not."""
    from ...clients.flight.deadline import answered_within
    from ...clients.flight.store import FlightStore

    with answered_within(_ANSWER_SECONDS), closing(FlightStore(location, retries=False)) as process:
        yield process


def _wait(
    location: str,
    seconds: float,
    is_done: Callable[[Whereabouts], bool],
    why_not: Callable[[Whereabouts], str | None] = lambda _: None,
) -> None:
    """Wait until a process that was told something says what is to become of it. Raises UnavailableError, with
    ``why_not`` of what it says in the end."""
    until = time.monotonic() + seconds
    while True:
        told = _where(location)
        if isinstance(told, Whereabouts) and is_done(told):
            return
        if time.monotonic() >= until:
            break
        time.sleep(_POLL_SECONDS)
    if isinstance(told, UnavailableError):
        why: str | None = told.message
    elif why := why_not(told):
        raise UnavailableError(why)
    else:
        why = told.trouble
    raise UnavailableError(
        f"{location} accepted the request, but has not completed it after {seconds:g} s{f': {why}' if why else ''}"
    )


def _end(all_told: Iterable[Told], told: Told) -> int:
    """Return the end of the log of the store of ``told``, as far as anybody knows."""
    if isinstance(told, UnavailableError):
        return 0
    return max(each.end or 0 for each in all_told if isinstance(each, Whereabouts) and each.name == told.name)


def _row(location: str, told: Told, end: int) -> tuple[object, ...]:
    if isinstance(told, UnavailableError):
        return "", location, _AWAY, "", "", "", "", ""
    holder = told.holder
    where = (", ".join(holder.locations) or holder.process) if holder else "nobody"
    age = "" if told.age_seconds is None else f"{told.age_seconds:.1f} s"
    lag = "" if told.end is None else f"{end - told.end:,} slots"
    if told.lag_seconds is not None:
        lag += f", reads {told.lag_seconds:.1f} s behind"
    epoch = holder.epoch if holder else ""
    return told.name or "", location, told.state, where, epoch, told.end or "", age, lag
