"""The parts of a scan over Flight: any process can read each, at any time within the history."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.flight as fl

from ...schemas.protocol.command import InfoMetadata


@dataclass(frozen=True, slots=True)
class ScanPart:
    """One part of a scan over Flight: a ticket, and the servers that can read it. It is plain data: send it to the
    process that reads it."""

    ticket: bytes
    locations: tuple[str, ...]
    """The servers that can read it, the best first; empty means the server that planned."""
    tablet: int | None
    """None if the part covers several tablets."""
    rows: int
    bytes: int
    """Rows and bytes are estimates."""


@dataclass(frozen=True, slots=True)
class ScanParts:
    """All parts of one scan over Flight, at one snapshot."""

    schema: pa.Schema
    snapshot: int
    schema_version: int
    parts: list[ScanPart]
    lease: str | None = None
    """Keeps the parts on the server until all are read, it expires, or ``release_scan`` ends it."""

    @classmethod
    def of(cls, info: fl.FlightInfo) -> ScanParts:
        """Return the parts in the answer to GetFlightInfo."""
        pinned = InfoMetadata.model_validate_json(info.app_metadata)
        parts = [_part(endpoint) for endpoint in info.endpoints]
        return cls(info.schema, pinned.snapshot, pinned.schema_version, parts, pinned.lease)


def _part(endpoint: fl.FlightEndpoint) -> ScanPart:
    said = json.loads(endpoint.app_metadata or b"{}")
    locations = tuple(location.uri.decode() for location in endpoint.locations)
    return ScanPart(endpoint.ticket.ticket, locations, said.get("tablet"), said.get("rows", 0), said.get("bytes", 0))
