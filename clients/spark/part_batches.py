"""The rows of a scan part, from the server that has its tablet now."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ...schemas.errors import UnavailableError, WrongServerError
from ...schemas.rows.scan import ScanSpec
from ...schemas.store.locations import joined
from ..flight.scan_parts import ScanPart
from .server import ServerOptions


def batches_of(server: ServerOptions, part: ScanPart) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a scan part to a Spark task, from the server that has its tablet now.

    Raises:
        WrongServerError: no server has the tablet.
        UnavailableError: the server cannot be reached; the message names it.
    """
    location = joined(part.locations) if part.locations else server.uri
    try:
        yield from server.at(location).read_part(part)
    except WrongServerError:  # raised before the first batch: the tablet has moved since planning
        yield from _followed(server, part)
    except UnavailableError as error:
        if location in error.message:
            raise
        said = f"the server at {location}: {error.message}"
        raise UnavailableError(said, error.retry_after_seconds, error.locations) from None


def _followed(server: ServerOptions, part: ScanPart) -> Iterator[pa.RecordBatch]:
    """Return the batches of a part whose tablet has moved, from its new server."""
    from ..cluster.store import PlacedStore  # needs numpy, and only here

    store, ticket = server.all_servers(), ScanSpec.model_validate_json(part.ticket)
    if not isinstance(store, PlacedStore) or ticket.partition is None:
        raise WrongServerError("a tablet has moved to another server: plan the scan again")
    return store.follow(ticket)
