"""What a server may be told when it starts."""

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from ..schemas.limits import Limits

MIB = 1 << 20


class ServerConfig(BaseModel):
    """Limits of a server and the sizes of what it sends. `settings` makes flags, variables and a file of the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scans_max: PositiveInt = 64
    """DoGet streams at once, and a fourth of the DoExchange streams: each holds one thread."""
    puts_max: PositiveInt = 64
    """DoPut streams at once."""
    point_reads_max: PositiveInt = 64
    """Batches of keys that are looked up at once."""
    plans_max: PositiveInt = 16
    """GetFlightInfo, GetSchema, ListFlights and ``explain`` at once."""
    calls_max: PositiveInt = 64
    """Short actions at once."""
    tasks_max: PositiveInt = 16
    """Actions that may take minutes at once: maintenance, commits of transactions and imports, moves."""
    long_reads_max: NonNegativeInt = 0
    """Scans and plans that work at once once they have had 10 ms of a processor; 0 means as many as processors."""
    large_requests_max: PositiveInt = 1
    """Scans and plans whose text is longer than ``large_request_bytes`` that are read at once."""
    large_request_bytes: PositiveInt = 64 * 1024
    """A longer ticket, or command of a scan, waits for others of its kind before it is read, and then gives way to all
    other requests."""
    peer_share: float = Field(default=0.5, gt=0, le=1)
    """The part of the streams of a kind that one connection, or one other machine, may have."""
    known_share: float = Field(default=0.25, ge=0, lt=1)
    """The part of the places for streams that is kept for connections whose last call has ended well."""
    waiting_max: PositiveInt = 256
    """Requests of a kind that wait for a place; more are refused at once."""
    wait_seconds_max: NonNegativeFloat = 2.0
    """How long a request waits for a place before it is told to come again."""
    stalled_seconds_max: PositiveFloat = 60.0
    """A stream whose client sends nothing, or takes nothing, for so long is ended."""
    yielding_seconds: NonNegativeFloat = 1.0
    """A stream that has waited for its client for so long is ended when another waits for its place."""
    request_bytes_max: PositiveInt = MIB
    """The command of a write or of point reads, an action's body, or the metadata of a batch."""
    scan_bytes_max: PositiveInt = 16 * MIB
    """A ticket, a scan's command or the body of ``explain``: room for a list of 100,000 strings."""
    batch_bytes_max: PositiveInt = Limits().batch_bytes
    """One incoming record batch, decompressed."""
    decompressed_bytes_max: PositiveInt = 2 * Limits().batch_bytes
    """All compressed batches together that are decompressed and not yet applied; others wait before they are."""
    staged_bytes_max: PositiveInt = 2 * Limits().batch_bytes
    """All DoPut streams together that are staged to be one commit each."""
    writes_ahead: PositiveInt = 8
    """Batches of a DoPut stream that wait for their fsync while the next one is received and applied."""
    sent_bytes_target: PositiveInt = 2 * MIB
    """About what a sent batch holds: smaller ones cost more calls, larger ones page faults."""
    sent_bytes_min: PositiveInt = MIB // 2
    """Smaller batches are put together."""
    sent_bytes_max: PositiveInt = 7 * MIB // 2
    """No sent batch of several rows is larger: some Flight clients refuse messages above 4 MiB."""
    drain_seconds: NonNegativeFloat = 10.0
    """How long a stop takes at most after SIGTERM; running requests may go on for most of it."""
    private_paths: tuple[str, ...] = ()
    """Directories that no error text may name."""
