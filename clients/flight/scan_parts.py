"""The parts of a scan over Flight: each can be read on its own, by any process, at any time within the history."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.flight as fl

from ...schemas.command import InfoMetadata


@dataclass(frozen=True, slots=True)
class ScanPart:
    """One part. It is plain data: send it where it is to be read."""

    ticket: bytes
    locations: tuple[str, ...]
    """Where it can be read, the best first; none means the server that was asked."""
    tablet: int | None
    """None where the part is of several tablets."""
    rows: int
    bytes: int
    """Rows and bytes are estimates."""


@dataclass(frozen=True, slots=True)
class ScanParts:
    """All parts of one scan, which read one snapshot."""

    schema: pa.Schema
    snapshot: int
    schema_version: int
    parts: list[ScanPart]
    lease: str | None = None
    """What the server keeps for the parts until all are read, nobody comes for a time, or ``release_scan``."""

    @classmethod
    def of(cls, info: fl.FlightInfo) -> ScanParts:
        """Return what a server answered to GetFlightInfo."""
        pinned = InfoMetadata.model_validate_json(info.app_metadata)
        parts = [_part(endpoint) for endpoint in info.endpoints]
        return cls(info.schema, pinned.snapshot, pinned.schema_version, parts, pinned.lease)


def _part(endpoint: fl.FlightEndpoint) -> ScanPart:
    said = json.loads(endpoint.app_metadata or b"{}")
    locations = tuple(location.uri.decode() for location in endpoint.locations)
    return ScanPart(endpoint.ticket.ticket, locations, said.get("tablet"), said.get("rows", 0), said.get("bytes", 0))
