"""GetFlightInfo, ListFlights and GetSchema: the schema and size of a scan's result, and the tickets to read it."""

from __future__ import annotations

from typing import cast

import pyarrow as pa
import pyarrow.flight as fl

from ...schemas.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError
from ...schemas.protocol.command import InfoMetadata, table_of
from ...schemas.protocol.service import StoreService
from ...schemas.rows.scan import ScanSpec
from ...schemas.rows.scan_plan import ScanPlan, ScanSplit
from ..security.guarded_store import GuardedStore
from ..settings.config import ServerConfig
from .get import scan_spec

_SPLIT_BYTES_MAX = 64 * 1024
"""A filter with more JSON than this is sent in one ticket."""


def asked_for(descriptor: fl.FlightDescriptor, config: ServerConfig) -> ScanSpec:
    """Return the scan that the descriptor of a GetFlightInfo means: a path is the whole table now, a command is JSON.

    Raises:
        InvalidArgumentError: it is neither.
    """
    if descriptor.descriptor_type == fl.DescriptorType.PATH:
        return ScanSpec(table=table_of(descriptor.path))
    return scan_spec(descriptor.command or b"", "the command", config)


def flight_info(store: StoreService, descriptor: fl.FlightDescriptor, config: ServerConfig) -> fl.FlightInfo:
    """Answer GetFlightInfo: return schema, size and tickets of a scan; all tickets read one snapshot, which is kept for
    a while.

    Raises:
        StoreError: the descriptor is invalid, or the scan cannot run.
    """
    return _info(store, asked_for(descriptor, config).model_copy(update={"pin": True}), descriptor)


def list_flights(store: StoreService, criteria: bytes) -> list[fl.FlightInfo]:
    """Answer ListFlights: return the info of every table.

    Raises:
        InvalidArgumentError: there are criteria, which are not supported.
    """
    if criteria:
        raise InvalidArgumentError("ListFlights takes no criteria; it lists all tables")
    if isinstance(store, GuardedStore):
        store = cast(StoreService, store.unnoted())
    infos = []
    for name in store.tables():
        try:
            infos.append(_info(store, ScanSpec(table=name), fl.FlightDescriptor.for_path(name)))
        except (NotFoundError, PermissionDeniedError):
            continue  # dropped meanwhile; or not for the caller, or not all of it
    return infos


def schema(store: StoreService, descriptor: fl.FlightDescriptor, config: ServerConfig) -> pa.Schema:
    """Answer GetSchema: return the schema of a scan's batches.

    Raises:
        StoreError: the descriptor is invalid, or the scan cannot run.
    """
    spec = asked_for(descriptor, config)
    return _planned(store, spec)[1]


def _info(store: StoreService, spec: ScanSpec, descriptor: fl.FlightDescriptor) -> fl.FlightInfo:
    plan, schema = _planned(store, spec)
    if plan.groups_at_most is not None:
        spec = spec.model_copy(update={"partial": False})  # one reader gets the answer sooner than several get parts
    is_whole = spec.is_whole or _is_long(spec)
    return fl.FlightInfo(
        schema,
        descriptor,
        [_whole(spec, plan)] if is_whole else [_part(spec, plan, split) for split in plan.splits],
        total_records=sum(split.rows for split in plan.splits),
        total_bytes=sum(split.bytes for split in plan.splits),
        ordered=is_whole,
        app_metadata=InfoMetadata(
            snapshot=plan.snapshot,
            schema_version=plan.schema_version,
            lease=plan.lease,
            hash=plan.hash or None,
            groups_at_most=plan.groups_at_most,
        ).model_dump_json(exclude_none=True),
    )


def _is_long(spec: ScanSpec) -> bool:
    """Return whether tickets for all parts would repeat a long list."""
    return spec.where is not None and len(spec.model_dump_json(include={"where"})) > _SPLIT_BYTES_MAX


def _planned(store: StoreService, spec: ScanSpec) -> tuple[ScanPlan, pa.Schema]:
    """Return the plan of a scan and the schema of its batches, both of one version of the table."""
    while True:
        plan, is_planned = store.plan(spec), False
        try:
            table = store.describe_table(spec.table)
            is_planned = plan.schema_version == table.schema_version
        finally:
            if not is_planned and plan.lease is not None:
                store.release_scan(plan.lease)
        if is_planned:
            return plan, spec.batch_schema(pa.schema([column.field for column in table.columns]))


def _part(spec: ScanSpec, plan: ScanPlan, split: ScanSplit) -> fl.FlightEndpoint:
    return _endpoint(
        split.ticket(spec),
        plan,
        split.model_dump_json(exclude_none=True, exclude={"locations", "planned", "lease", "partition"}),
        split,
    )


def _whole(spec: ScanSpec, plan: ScanPlan) -> fl.FlightEndpoint:
    """Return one endpoint for all tablets: for rows that are sorted, limited or aggregated over them."""
    only = plan.splits[0].tablet if len(plan.splits) == 1 else None
    rows, size = (sum(getattr(split, part) for split in plan.splits) for part in ("rows", "bytes"))
    metadata = ScanSplit.model_construct(tablet=only, rows=rows, bytes=size).model_dump_json()
    return _endpoint(spec, plan, metadata)


def _endpoint(spec: ScanSpec, plan: ScanPlan, metadata: str, split: ScanSplit | None = None) -> fl.FlightEndpoint:
    planned = split.planned if split and split.planned else plan.planned
    told = {"planned": planned, "lease": split.lease if split and split.lease else plan.lease}
    pinned = spec.pinned(plan.snapshot).model_copy(
        update={"split_bytes": None, "all_parts": False, "pin": False, **told}
    )
    # No location means the server that was asked.
    return fl.FlightEndpoint(
        pinned.model_dump_json(exclude_defaults=True), split.locations if split else [], app_metadata=metadata
    )
