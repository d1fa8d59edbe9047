"""The page of servers: which process has the store, which stand by or follow, and what is wrong with the store."""

from __future__ import annotations

from ....schemas.errors import UnavailableError
from ....schemas.store.description import Health
from ....schemas.store.whereabouts import Whereabouts
from ...requests.process_metrics import process_families
from ...stores.gateway import Gateway
from .frame import Page, page
from .html import Cell, Element, live, table, tag, tiles
from .visit import Visit
from .words import clock, duration

PATH = "/console/servers"
_STARTED = "process_start_time_seconds"
_TITLES = "Name", "Location", "State", "Store is at", "Claim", "End of log", "Age of it", "Reads behind"
_ABOUT = (
    "A standby takes the store over when its holder is gone; until then a replica answers reads, with the delay shown. "
    "Servers of a placement are asked at all of their locations. The holder of a store without a placement does not "
    "know its standbys: see their own pages, or nyala server status."
)


def servers_page(visit: Visit) -> Page:
    """Return the console's page of the processes of the store, and the servers that share its tables. Raises
    PermissionDeniedError: they are for those who operate them."""
    visit.check_operates()
    health, here = visit.store.health(), visit.server.process.whereabouts()
    since = next((each.samples[0].value for each in process_families() if each.name == _STARTED), None)
    return page(
        "Servers",
        live(
            "servers",
            tiles(
                ("State", _status(health)),
                ("This process", "has the store" if here.state == "holder" else "stands by"),
                *([("Store", here.name)] if here.name else []),
                *([("Started", clock(since))] if since else []),
            ),
            *([tag("p", health.reason, class_="bad")] if health.reason else []),
            *([tag("p", f"It could not take the store over: {here.trouble}", class_="bad")] if here.trouble else []),
            tag("h2", "Holder, standbys and replicas"),
            _holders(visit, here),
            *_processes(visit, health),
            *_damaged(health),
        ),
        at=PATH,
        is_live=True,
    )


def _status(health: Health) -> Cell:
    return health.status if health.status == "ok" else tag("span", health.status, class_="bad")


def _holders(visit: Visit, here: Whereabouts) -> Element:
    store = visit.server.store
    if here.name is None:
        return tag("p", "The store is in a directory of this machine: no other process can have it, or follow it.")
    told: dict[tuple[str, str], Whereabouts | UnavailableError] = {("", "this process"): here}
    if isinstance(store, Gateway):
        told |= store.whereabouts()
    return table(_TITLES, [_holder(*place, each) for place, each in told.items()], 4, _ABOUT)


def _holder(server: str, location: str, told: Whereabouts | UnavailableError) -> tuple[Cell, ...]:
    if isinstance(told, UnavailableError):
        return server, location, tag("span", "away", class_="bad"), "", "", "", "", ""
    holder = told.holder
    return (
        told.name or server,
        location,
        told.state if told.lag_seconds is None else "replica",
        (", ".join(holder.locations) or ("here" if told.state == "holder" else holder.process)) if holder else "nobody",
        f"{holder.epoch:,}" if holder and holder.epoch else "",
        "" if told.end is None else f"{told.end:,}",
        "" if told.age_seconds is None else duration(told.age_seconds),
        "" if told.lag_seconds is None else duration(told.lag_seconds),
    )


def _processes(visit: Visit, health: Health) -> list[Element]:
    if not health.processes:
        return []
    families = visit.server.metrics(visit.caller).families
    up = (each for family in families if family.name == "nyala_process_up" for each in family.samples)
    answers = {each.labels["process"] for each in up if each.value}
    rows: list[tuple[Cell, ...]] = [
        (name, uuid, "answers" if name in answers else tag("span", "is down", class_="bad"))
        for name, uuid in health.processes.items()
    ]
    return [
        tag("h2", "Processes"),
        table(("Process", "Store", "State"), rows, 3, "They share the tablets of the store."),
    ]


def _damaged(health: Health) -> list[Element]:
    if not health.damaged:
        return []
    rows: list[tuple[Cell, ...]] = [
        (each.path, each.table or "", "" if each.tablet is None else f"{each.tablet}", each.why, each.next_step)
        for each in health.damaged
    ]
    return [tag("h2", "Damaged files"), table(("File", "Table", "Tablet", "What is wrong", "What to do"), rows, 5)]
