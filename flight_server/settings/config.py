"""The configuration of a Flight server."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from ...schemas.limits.limits import Limits
from ...schemas.message import Message

MIB = 1 << 20


def listed(given: Any) -> Any:
    """Return the values of a setting that is separated by commas in a text."""
    return [each.strip() for each in given.split(",")] if isinstance(given, str) else given


class ServerConfig(Message, frozen=True, extra="forbid"):
    """The settings of a server that are limits, and the sizes of what it sends. `settings` makes flags, variables and a
    file of the fields."""

    scans_max: PositiveInt = 64
    """Concurrent DoGet streams, and a fourth of the concurrent DoExchange streams; each holds one thread."""
    puts_max: PositiveInt = 64
    """Concurrent DoPut streams."""
    point_reads_max: PositiveInt = 64
    """Concurrent look-ups of batches of keys."""
    plans_max: PositiveInt = 16
    """Concurrent GetFlightInfo, GetSchema, ListFlights and ``explain`` requests."""
    calls_max: PositiveInt = 64
    """Concurrent short actions."""
    statements_max: PositiveInt = 16
    """Concurrent updates, deletes and restores by a condition."""
    tasks_max: PositiveInt = 16
    """Concurrent actions that may take minutes: maintenance, commits of transactions and imports, moves."""
    long_reads_max: NonNegativeInt = 0
    """Scans, plans and statements that may run at the same time after their first 10 ms of CPU; 0 means one per CPU."""
    large_requests_max: PositiveInt = 1
    """Scans and plans longer than ``large_request_bytes`` that are parsed at the same time."""
    large_request_bytes: PositiveInt = 64 * 1024
    """A longer ticket or scan command waits for others of its kind before it is parsed, and then gives way to all
    other requests."""
    connection_streams_max: PositiveInt = 512
    """Requests of one connection that are open at once; further ones wait at the client."""
    threads_max: PositiveInt = 4096
    """Threads for requests. One for which there is no thread is answered RESOURCE_EXHAUSTED."""
    peer_share: float = Field(default=0.5, gt=0, le=1)
    """The share of the streams of a kind that one connection, or one other machine, may have."""
    user_share: float = Field(default=0.75, gt=0, le=1)
    """The share of the places of each kind that one user may have, over all connections and machines, on a server with
    authentication."""
    known_share: float = Field(default=0.25, ge=0, lt=1)
    """The share of the stream slots reserved for connections whose last call succeeded."""
    waiting_max: PositiveInt = 256
    """Requests of a kind that may wait for a slot; further ones are rejected immediately."""
    wait_seconds_max: NonNegativeFloat = 2.0
    """How long a request waits for a slot before it is rejected with the advice to retry."""
    stalled_seconds_max: PositiveFloat = 60.0
    """A stream whose client sends or reads nothing for this long is closed."""
    stream_seconds_max: NonNegativeFloat = 86_400.0
    """A stream is closed after this long, whether or not it makes progress; 0: never."""
    yielding_seconds: NonNegativeFloat = 1.0
    """A stream that has waited this long for its client is closed when another stream needs its slot."""
    request_bytes_max: PositiveInt = MIB
    """The command of a write or of point reads, an action's body, or the metadata of a batch."""
    scan_bytes_max: PositiveInt = 16 * MIB
    """A ticket, a scan's command or the body of ``explain``: room for a list of 100,000 strings."""
    batch_bytes_max: PositiveInt = Limits().batch_bytes
    """One incoming record batch, decompressed."""
    decompressed_bytes_max: PositiveInt = 2 * Limits().batch_bytes
    """Total size of decompressed batches not yet applied; further batches wait before they are decompressed."""
    staged_bytes_max: PositiveInt = 2 * Limits().batch_bytes
    """Total size of all DoPut streams that are staged to be one commit each."""
    writes_ahead: PositiveInt = 8
    """Batches of a DoPut stream that may wait for their fsync while the next one is received and applied."""
    sent_bytes_target: PositiveInt = 2 * MIB
    """Approximate size of a sent batch: smaller ones cost more calls, larger ones page faults."""
    sent_bytes_min: PositiveInt = MIB // 2
    """Smaller batches are combined."""
    sent_bytes_max: PositiveInt = 7 * MIB // 2
    """Maximum size of a sent batch of several rows: some Flight clients reject messages above 4 MiB."""
    sql: bool = False
    """Answer Flight SQL: see docs/sql.md."""
    sql_places: PositiveInt = 4
    """Processes in which statements of SQL run, one in each at the same time; further statements wait."""
    sql_memory_bytes: PositiveInt = 1 << 30
    """Memory of one statement's sorts, groups and joins."""
    sql_leaf_bytes: PositiveInt = 256 * MIB
    """The most bytes of a statement's tables that are read before it runs; larger tables stream."""
    sql_spill_bytes: PositiveInt = 16 << 30
    """The most bytes that a statement's sorts and groups write to temporary files."""
    sql_timeout_seconds: PositiveFloat = 3600.0
    """A statement that runs for longer is ended."""
    slow_request_seconds: NonNegativeFloat = 10.0
    """A request on which the server works for at least this long is logged, without its contents; 0 logs none."""
    drain_seconds: NonNegativeFloat = 10.0
    """How long a stop may take after SIGTERM; running requests may continue for most of it."""
    advertise: Annotated[tuple[str, ...], BeforeValidator(listed)] = ()
    """The locations that clients are given for this server, separated by commas: such as ``grpc://m1:8815``. By default
    where it listens, with the machine's name for 0.0.0.0, if its store is in a bucket."""
    private_paths: tuple[str, ...] = ()
    """Directories that error messages must not name."""
