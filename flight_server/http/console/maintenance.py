"""The page of maintenance, and what its buttons do: run work on a table now, or pause a kind of work for a while.

A button is a form with a token that only this console gives out, to this user. So no page of somebody else can press
it, although a browser would send the user's password along.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
from collections import Counter
from collections.abc import Mapping

from ....schemas.errors import InvalidArgumentError, PermissionDeniedError, StoreError, UnavailableError
from ....schemas.protocol.service import MaintenanceKind
from ....schemas.protocol.verb import Kind
from ....schemas.store.grants import Privilege
from ....schemas.store.maintenance import DoneWork, DueWork, MaintenanceState, PauseMaintenance
from ...security.guarded_store import GuardedStore
from ...security.identity import Identity
from .frame import Page, page
from .html import Cell, Element, live, table, tag
from .requests import LATENCIES, latencies
from .visit import Visit
from .words import clock, duration

PATH = "/console/maintenance"
TITLES = {
    MaintenanceKind.FLUSH: "Flush rows",
    MaintenanceKind.FLUSH_DELTAS: "Flush changes",
    MaintenanceKind.MINOR_COMPACT: "Merge files of changes",
    MaintenanceKind.MAJOR_COMPACT: "Merge changes into columns",
    MaintenanceKind.GC: "Drop old history",
    MaintenanceKind.COMPACT: "Merge rowsets",
}
_PAUSES = {"10 minutes": 600, "1 hour": 3600, "8 hours": 28_800}
_RUNS_MAX, _RUNS_OF_USER = 4, 2
_LOG = logging.getLogger("nyala.flight_server")


class Buttons:
    """Does what the buttons of the console's pages ask for: work on tables, and pauses of maintenance. Thread safe."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._running: Counter[str] = Counter()
        """The users whose work runs."""
        self._lock = threading.Lock()

    def token(self, caller: Identity | None) -> str:
        """Return what shows that a form is from this console, for this caller."""
        return hmac.new(self._key, _user(caller).encode(errors="replace"), hashlib.sha256).hexdigest()

    def check(self, caller: Identity | None, form: Mapping[str, str], origin: str, host: str) -> None:
        """Check that a form was sent by a page of this console. ``origin`` is the page that sent it, as the browser
        tells, and ``host`` what this server is called there.

        Raises:
            PermissionDeniedError: it was not, or by one from before the server was restarted.
        """
        is_own = bool(host) and origin.partition("://")[2] == host
        if not (is_own and hmac.compare_digest(form.get("token", "").encode(), self.token(caller).encode())):
            raise PermissionDeniedError(
                "the request does not come from a button of this console, or the page is too old: open the page again"
            )

    def press(self, visit: Visit, form: Mapping[str, str]) -> None:
        """Do what a checked form asks for.

        Raises:
            InvalidArgumentError: it asks for nothing that there is.
            NotFoundError, PermissionDeniedError: it is not for this caller.
            UnavailableError: too much runs already.
        """
        op, seconds = form.get("op", ""), form.get("seconds")
        if op not in set(MaintenanceKind):
            raise InvalidArgumentError("`op` is not a maintenance operation")
        if seconds is None:
            self._run(visit, form.get("table", ""), op)
        elif seconds in map(str, (0, *_PAUSES.values())):
            visit.store.pause_maintenance(PauseMaintenance(op=op, seconds=int(seconds)))
        else:
            raise InvalidArgumentError("`seconds` is not one of the pauses that the page offers")

    def _run(self, visit: Visit, name: str, op: str) -> None:
        """Begin work on a table. It may take minutes: a thread of its own does it, and the page shows it."""
        store = visit.store
        if isinstance(store, GuardedStore):
            store.need(name, Privilege.MAINTAIN, "maintain")
        store.describe_table(name)
        user = _user(visit.caller)
        with self._lock:
            of_user = _RUNS_OF_USER if user else _RUNS_MAX
            if self._running.total() >= _RUNS_MAX or self._running[user] >= of_user:
                raise UnavailableError(
                    "the console already runs as many operations as it may: try again when one has ended",
                    5.0,
                )
            self._running[user] += 1
        try:
            threading.Thread(target=self._work, args=(visit, name, op), name="nyala-console", daemon=True).start()
        except BaseException:
            self._end(user)
            raise

    def _end(self, user: str) -> None:
        with self._lock:
            self._running[user] -= 1
            self._running += Counter()  # forgets those with none

    def _work(self, visit: Visit, name: str, op: str) -> None:
        try:
            with visit.server.admission.admit(Kind.TASK):  # so that a stopping server waits for it
                visit.store.maintain(name, op)
        except StoreError as error:
            _LOG.info("%s from the console failed: %s", op, error.code)
        except Exception:
            _LOG.exception("%s from the console failed", op)
        finally:
            self._end(_user(visit.caller))


def _user(caller: Identity | None) -> str:
    return "" if caller is None else caller.user


def maintenance_page(visit: Visit, buttons: Buttons) -> Page:
    """Return the console's page of what maintenance is due, runs and was done. Raises PermissionDeniedError: it is of
    all tables."""
    state, token = visit.store.maintenance(), buttons.token(visit.caller)
    running = ", ".join(state.running) or "nothing"
    is_off = "" if state.is_on else " Maintenance is off: due work is done only on request."
    return page(
        "Maintenance",
        live(
            "state",
            tag("p", f"Now running: {running}.{is_off}"),
            *_failing(state),
            tag("h2", "Due"),
            table(
                ("Work", "Table", "Score", "Run"),
                [_due(each, token) for each in state.due],
                2,
                _about(state),
                empty="Nothing is due.",
            ),
            tag("h2", "Last done"),
            table(("Work", "Table", "Ended", "Took", "Error"), map(_done, state.done), 3, "The newest first."),
        ),
        tag("h2", "Kinds of work"),
        table(
            ("Work", "Paused until", "Pause"),
            [_kind(kind, state, token) for kind in TITLES],
            3,
            "Work of a paused kind is done only on request, or when writers wait for memory. A restart ends "
            "all pauses.",
        ),
        tag("h2", "Times"),
        table(
            ("Work", *LATENCIES),
            latencies(visit.server.metrics(visit.caller), "nyala_maintenance_seconds"),
            about="Since the start.",
        ),
        at=PATH,
        is_live=True,
    )


def run_buttons(visit: Visit, buttons: Buttons, name: str) -> list[Element]:
    """Return the buttons for work on a table, for its page of the console; none if it is not for the caller."""
    if not visit.maintains(name):
        return []
    token = buttons.token(visit.caller)
    forms = [_button(title, token, op=kind, table=name) for kind, title in TITLES.items()]
    return [tag("h2", "Maintenance"), tag("p", *(part for form in forms for part in (form, " ")))]


def _failing(state: MaintenanceState) -> list[Element]:
    if not state.failing:
        return []
    columns = "Work", "Table", "Error", "Failures", "Since", "Next try"
    rows = [
        (each.name, each.table, each.error, f"{each.failures:,}", clock(each.since), clock(each.next_try))
        for each in state.failing
    ]
    about = "The longest failing first. Failing work does not hold up other work."
    return [tag("h2", "Failing"), table(columns, rows, 3, about)]


def _about(state: MaintenanceState) -> str:
    shown = f" {len(state.due)} of {state.due_count:,} are shown." if state.due_count > len(state.due) else ""
    return f"The greatest score is done next.{shown}"


def _due(work: DueWork, token: str) -> tuple[Cell, ...]:
    is_known = work.op is not None and work.table
    button = _button("Run now", token, work.name, op=work.op, table=work.table) if is_known else ""
    return work.name, work.table, f"{work.score:,.2f}", button


def _done(work: DoneWork) -> tuple[Cell, ...]:
    return work.name, work.table, clock(work.ended), duration(work.seconds), work.error


def _kind(kind: MaintenanceKind, state: MaintenanceState, token: str) -> tuple[Cell, ...]:
    title = TITLES[kind]
    if until := state.paused.get(kind):
        return title, clock(until), _button("Resume", token, title, op=kind, seconds=0)
    choices = [tag("option", name, value=seconds) for name, seconds in _PAUSES.items()]
    choice = tag("select", *choices, name="seconds", aria_label=f"How long to pause: {title}")
    return title, "", _form(token, {"op": kind}, choice, " ", _submit("Pause", title))


def _button(text: str, token: str, about: str = "", **fields: object) -> Element:
    return _form(token, fields, _submit(text, about))


def _submit(text: str, about: str) -> Element:
    return tag("button", text, type="submit", **({"aria_label": f"{text}: {about}"} if about else {}))


def _form(token: str, fields: Mapping[str, object], *content: Cell) -> Element:
    hidden = [tag("input", type="hidden", name=name, value=value) for name, value in {**fields, "token": token}.items()]
    return tag("form", *hidden, *content, method="post", action=PATH)
