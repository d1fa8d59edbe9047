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

from ..schemas.errors import InvalidArgumentError, NotFoundError, UnavailableError
from ..schemas.locations import locations_of
from ..schemas.server_verbs import ServerVerbs
from ..schemas.whereabouts import Whereabouts
from .commands import Json

app = typer.Typer(no_args_is_help=True, help="See which servers have the stores of a bucket, and hand stores over.")

_POLL_SECONDS = 0.1
_ANSWER_SECONDS = 10.0
_TITLES = ("name", "location", "state", "holder", "epoch", "end of log", "age of slot", "lag")
_AWAY = "away"
Url = Annotated[
    str | None,
    typer.Option("--url", envvar="NYALA_URL", help="The URLs of servers, separated by commas."),
]
Bucket = Annotated[str | None, typer.Option("--data", help="The URL of a bucket: all that its stores' hints name.")]
PlacementFile = Annotated[
    Path | None, typer.Option("--placement", help="A placement file: all locations of its servers.")
]
StoreName = Annotated[str, typer.Argument(help="The name of the store.")]
Seconds = Annotated[float, typer.Option(min=0, help="How long to wait until it is done.")]


@app.command("status")
def status(
    url: Url = None,
    data: Bucket = None,
    placement: PlacementFile = None,
    name: Annotated[str | None, typer.Option(help="Only this store.")] = None,
    json_output: Json = False,
) -> None:
    """Print which servers have a store, and how far those are that stand by; exit with 1 if a store has no holder."""
    if data is None and placement is None and name is not None:
        raise InvalidArgumentError("--name is that of a store in the bucket of --data, or of a server of --placement")
    servers = _servers(url, data, placement, name)
    found = dict(_asked(_locations(servers)))
    if json_output:
        typer.echo(json.dumps({each: told.model_dump() if told else None for each, told in found.items()}))
    else:
        from ..clients.cli.output import print_table

        print_table(_TITLES, [_row(each, told, _end(found.values(), told)) for each, told in found.items()])
    names = {told.name for told in found.values() if told} | (servers.keys() - {None})
    if names != {told.name for told in found.values() if told and told.state == "holder"} or not names:
        raise typer.Exit(1)


@app.command("release")
def release(
    name: StoreName, url: Url = None, data: Bucket = None, placement: PlacementFile = None, seconds: Seconds = 60.0
) -> None:
    """Let the process that has a store leave it to one that stands by; wait until it is done."""
    where = _the_holder(_locations(_servers(url, data, placement, name)), name)
    _tell(where, lambda process: process.server_release(name))
    found = _wait(where, seconds, lambda told: told is not None and told.state == "standby")
    others = found.holder.locations if found and found.holder else []
    typer.echo(f"{where} released the store {name}" + (f"; {', '.join(others)} has it" if others else ""))


@app.command("take")
def take(
    name: StoreName,
    url: Url = None,
    force: Annotated[bool, typer.Option("--force", help="Take it from a holder that lives.")] = False,
    seconds: Seconds = 60.0,
) -> None:
    """Let a process that stands by take a store, as soon as nobody has it, or with --force at once; wait until it is
    done."""
    where, *more = _locations(_servers(url))
    if more:
        raise InvalidArgumentError("give the URL of the one server that is to take the store")
    _tell(where, lambda process: process.server_take(name, force))
    _wait(where, seconds, lambda told: told is not None and told.state == "holder")
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
    from .location import DEFAULT_LOCATION

    return {None: locations_of(url or DEFAULT_LOCATION)}


def _noted(data: str, name: str | None) -> dict[str | None, Sequence[str]]:
    """Return the locations that the hints in a bucket name."""
    from ..engine.bucket.opening import bucket_of
    from ..engine.home.where import NAME, read_where

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
        raise NotFoundError(f"no process of {data} has told where it is; give --url")
    return found


def _placed(placement: Path, name: str | None) -> dict[str | None, Sequence[str]]:
    """Return the locations of the servers of a placement file, or of the server ``name``."""
    from ..clients.cluster.placement_file import read_placement

    servers = read_placement(placement).servers
    if name is not None and name not in servers:
        raise NotFoundError(f"{placement} has no server {name!r}; known: {', '.join(servers)}")
    return {each: locations for each, locations in servers.items() if name in (None, each)}


def _locations(servers: Mapping[str | None, Sequence[str]]) -> list[str]:
    return [each for locations in servers.values() for each in locations]


def _asked(locations: Sequence[str]) -> Iterator[tuple[str, Whereabouts | None]]:
    """Yield what each location tells, in their order; all are asked at once."""
    with ThreadPoolExecutor(len(locations)) as threads:
        yield from zip(locations, threads.map(_where, locations), strict=True)


def _where(location: str) -> Whereabouts | None:
    """Return what a server tells; None if it does not answer."""
    try:
        with _process(location) as process:
            return process.whereabouts()
    except UnavailableError:
        return None


def _the_holder(locations: Sequence[str], name: str) -> str:
    for each, told in _asked(locations):
        if told and told.state == "holder" and told.name == name:
            return each
        for other in told.holder.locations if told and told.name == name and told.holder else []:
            if (found := _where(other)) and found.state == "holder":
                return other
    raise NotFoundError(f"none of {', '.join(locations)} has the store {name}, nor knows who has it")


def _tell(location: str, what: Callable[[ServerVerbs], None]) -> None:
    with _process(location) as process:
        what(process)


@contextmanager
def _process(location: str) -> Iterator[ServerVerbs]:
    """Talk to the process at a location, whether it has the store or not."""
    from ..clients.flight.deadline import answered_within
    from ..clients.flight.store import FlightStore

    with answered_within(_ANSWER_SECONDS), closing(FlightStore(location, retries=False)) as process:
        yield process


def _wait(location: str, seconds: float, is_done: Callable[[Whereabouts | None], bool]) -> Whereabouts | None:
    until = time.monotonic() + seconds
    while not is_done(found := _where(location)):
        if time.monotonic() >= until:
            why = f": {found.trouble}" if found and found.trouble else ""
            raise UnavailableError(f"{location} was told, but it is not done after {seconds:g} s{why}")
        time.sleep(_POLL_SECONDS)
    return found


def _end(all_told: Iterable[Whereabouts | None], told: Whereabouts | None) -> int:
    """Return the end of the log of the store of ``told``, as far as anybody knows."""
    return max((each.end or 0 for each in all_told if each and told and each.name == told.name), default=0)


def _row(location: str, told: Whereabouts | None, end: int) -> tuple[object, ...]:
    if told is None:
        return "", location, _AWAY, "", "", "", "", ""
    holder = told.holder
    where = (", ".join(holder.locations) or holder.process) if holder else "nobody"
    age = "" if told.age_seconds is None else f"{told.age_seconds:.1f} s"
    lag = "" if told.end is None else f"{end - told.end:,} slots"
    if told.lag_seconds is not None:
        lag += f", reads {told.lag_seconds:.1f} s"
    epoch = holder.epoch if holder else ""
    return told.name or "", location, told.state, where, epoch, told.end or "", age, lag
