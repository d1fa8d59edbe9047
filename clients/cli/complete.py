"""Completion in the shell: the tables of a server, and the words that an option takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import typer

from ...schemas.errors import StoreError
from ...schemas.store.locations import DEFAULT_LOCATION


def one_of(*words: str) -> Callable[[str], list[str]]:
    """Return the shell completion of an option that takes one of ``words``."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def tables(context: typer.Context, incomplete: str) -> list[str]:
    """Return the shell completions of a table's name: the tables at ``--url`` that begin with ``incomplete``; none if
    no server answers.

    A store in ``--data`` is not opened for this: another process may have it.
    """
    from ..api.connect import connect
    from ..flight.credentials import TokenFile

    if context.params.get("data"):
        return []
    shown = context.find_root().params  # options before the verb: completion does not call what takes them
    file, certificate, key = (shown.get(name) for name in ("token_file", "client_cert", "client_key"))
    try:
        with connect(
            context.params.get("url") or DEFAULT_LOCATION,
            retries=False,
            token=TokenFile(Path(file)) if file else None,
            tls_roots=shown.get("tls_roots"),
            client_cert=(certificate, key) if certificate and key else certificate,
        ) as database:
            return [name for name in database.tables() if name.startswith(incomplete)]
    except StoreError:
        return []
