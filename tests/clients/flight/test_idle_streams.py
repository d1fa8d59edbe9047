"""Streams that are idle when their client ends are closed, whoever looks through them."""

from __future__ import annotations

from nyala.clients.flight.idle_streams import IdleStreams


class Stream:
    """Ends its client when it is asked for its kind."""

    idle_since = 0.0
    is_closed = False

    def __init__(self, streams: IdleStreams[Stream]) -> None:
        self._streams = streams

    @property
    def kind(self) -> str:
        self._streams.close()
        return "another"

    def close(self) -> None:
        self.is_closed = True


def test_streams_that_are_looked_through_when_the_client_ends_are_closed() -> None:
    streams: IdleStreams[Stream] = IdleStreams()
    stream = Stream(streams)
    streams._idle.append(stream)
    assert streams.borrow("kind") is None
    assert stream.is_closed
