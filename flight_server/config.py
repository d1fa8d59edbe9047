"""What a server may be told when it starts."""

from dataclasses import dataclass

from ..schemas.limits import Limits

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Limits of a server and the sizes of what it sends."""

    scans_max: int = 64
    """DoGet and DoExchange streams at once; each holds one thread, so more are told to come again."""
    puts_max: int = 64
    """DoPut streams at once."""
    request_bytes_max: int = MIB
    """The command of a write or of point reads, an action's body, or the metadata of a batch."""
    scan_bytes_max: int = 16 * MIB
    """A ticket, a scan's command or the body of ``explain``: room for a list of 100,000 strings."""
    batch_bytes_max: int = Limits().batch_bytes
    """One incoming record batch, decompressed."""
    staged_bytes_max: int = 2 * Limits().batch_bytes
    """All DoPut streams together that are staged to be one commit each."""
    writes_ahead: int = 8
    """Batches of a DoPut stream that wait for their fsync while the next one is received and applied."""
    sent_bytes_target: int = 2 * MIB
    """About what a sent batch holds: smaller ones cost more calls, larger ones page faults."""
    sent_bytes_min: int = MIB // 2
    """Smaller batches are put together."""
    sent_bytes_max: int = 7 * MIB // 2
    """No sent batch of several rows is larger: some Flight clients refuse messages above 4 MiB."""
    drain_seconds: float = 10.0
    """How long running requests may go on after SIGTERM."""
    private_paths: tuple[str, ...] = ()
    """Directories that no error text may name."""
