"""The page of the settings in effect, without secrets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ....schemas.phrases import size
from .frame import Page, page
from .html import table, tag, tiles
from .listing import Column, Listing
from .visit import Visit

if TYPE_CHECKING:
    from ...settings.settings import Shown

PATH = "/console/settings"


def _value(setting: Shown) -> str:
    value = setting.value
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if value is None or isinstance(value, str):
        return value or ""
    is_size = setting.name.endswith(("_bytes", "_bytes_max")) and value >= 1024
    return f"{json.dumps(value)} ({size(value)})" if is_size else json.dumps(value)


_COLUMNS: list[Column[Shown]] = [
    Column("Setting", lambda each: each.name, lambda each: (each.where is None, each.name)),
    Column("Value", _value),
    Column("Set by", lambda each: each.where or "", lambda each: (each.where is None, each.where or "", each.name)),
    Column("Meaning", lambda each: each.about.replace("``", "")),
]


def settings_page(visit: Visit) -> Page:
    """Return the console's page of all settings of the server, and where they were set. Raises PermissionDeniedError:
    the caller is no administrator."""
    visit.check_administers("settings")
    listing = Listing(visit, PATH, _COLUMNS)
    settings = visit.around.settings()
    found = [each for each in settings if listing.has(each.name, each.about, _value(each), each.where or "")]
    given = sum(each.where is not None for each in settings)
    return page(
        "Settings",
        tag(
            "p",
            "Settings in effect since the start: first those that were set, then the others, which have their "
            "defaults.",
        ),
        tiles(("Settings", f"{len(settings):,}"), ("Set", f"{given:,}")),
        listing.form("Part of a name, a value or a meaning"),
        table(
            listing.titles(), listing.rows(listing.sorted(found)), len(_COLUMNS), empty="No setting contains this text."
        ),
        at=PATH,
    )
