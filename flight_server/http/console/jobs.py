"""The page of backups and jobs: long work that clients have asked for, and what is kept for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ....schemas.errors import StoreError
from ....schemas.phrases import counted, size
from ....schemas.protocol.verb import Kind
from ....schemas.store.grants import Privilege
from ....schemas.store.metrics import MetricFamily
from ...requests.recent_requests import RecentRequest
from ...requests.source_metrics import SOURCES
from .frame import Page, page
from .html import Cell, Element, live, table, tag
from .visit import Visit
from .words import clock, clock_lately, duration, moment

PATH = "/console/jobs"
Answer = TypeVar("Answer")
_ABOUT = (
    "Jobs (nyala job backup, restore, export, load ...) run in processes of their own, and write their results "
    "outside of the store. Below are their requests to this server."
)


def jobs_page(visit: Visit) -> Page:
    """Return the console's page of the long work of clients, and of what the store keeps for them. Raises
    PermissionDeniedError: it is that of all users."""
    visit.check_operates()
    families = {family.name: family for family in visit.server.metrics(visit.caller).families}
    running = [
        (call.verb, call.table, call.user or "", call.peer.address, duration(seconds))
        for call, seconds, _ in visit.server.calls.running()
        if call.kind is Kind.TASK
    ]
    return page(
        "Backups and jobs",
        tag("p", _ABOUT),
        live(
            "jobs",
            tag("h2", "Running"),
            table(("Work", "Table", "User", "From", "Time"), running, 4),
            tag("h2", "Ended"),
            _ended(visit.server.calls.recent.tasks.all()),
            tag("h2", "Unfinished work"),
            tag("p", "Unfinished work keeps files until it ends or expires."),
            table(("Kind", "Process", "Count"), _unfinished(families), 2),
            tag("h2", "Sources"),
            tag("p", "What nyala mirror and nyala consume follow, as of its last commit."),
            table(("Source", "Applied", "Lag", "Behind"), _sources(families), 2),
        ),
        tag("h2", "Pins"),
        tag("p", "Snapshots with a name, kept until they are dropped: backups that copy nothing."),
        _pins(visit),
        tag("h2", "Dropped tables"),
        tag("p", "Dropped tables that can be recalled, with all rows and history."),
        _dropped(visit),
        at=PATH,
        is_live=True,
    )


def _unfinished(families: dict[str, MetricFamily]) -> list[tuple[Cell, ...]]:
    found = families["nyala_unfinished"].samples if "nyala_unfinished" in families else ()  # no process may answer
    return [(each.labels["kind"], each.labels.get("process", ""), f"{each.value:,.0f}") for each in found]


def _sources(families: dict[str, MetricFamily]) -> list[tuple[Cell, ...]]:
    lag, behind, applied, messages = (
        {each.labels["source"]: each.value for each in families[name].samples} if name in families else {}
        for name in SOURCES
    )

    def distance(name: str) -> str:
        return counted(int(messages[name]), "message") if name in messages else size(behind.get(name, 0.0))

    return [
        (name, clock_lately(applied[name]), duration(lag.get(name, 0.0)), distance(name)) for name in sorted(applied)
    ]


def _ended(tasks: list[RecentRequest]) -> Element:
    rows = [
        (clock_lately(each.ended), each.verb, each.table, each.user or each.address, duration(each.seconds), each.code)
        for each in tasks
    ]
    return table(("Ended", "Work", "Table", "User", "Time", "Error"), rows, 4, "The newest first, of the last 100.")


def _pins(visit: Visit) -> Element:
    def shown() -> Element:
        rows: list[tuple[Cell, ...]] = [
            (each.name, each.table or "all tables", moment(each.snapshot)) for each in visit.store.pins()
        ]
        return table(("Pin", "Table", "Snapshot"), rows, 3)

    return _if_granted(visit, Privilege.READ, shown)


def _dropped(visit: Visit) -> Element:
    def shown() -> Element:
        rows: list[tuple[Cell, ...]] = [
            (each.name, f"{each.table_id}", clock(each.until.timestamp())) for each in visit.store.dropped_tables()
        ]
        return table(("Table", "Id", "Kept until"), rows, 3)

    return _if_granted(visit, Privilege.ALTER, shown)


def _if_granted(visit: Visit, privilege: Privilege, shown: Callable[[], Element]) -> Element:
    """Return what needs a privilege on all tables, or that it is lacking, or not there."""
    if not visit.has_everywhere(privilege):
        return tag("p", f"Shown only to users who have {privilege} on all tables.")
    try:
        return shown()
    except StoreError as error:
        return tag("p", f"Not available here: {error.message}.")
