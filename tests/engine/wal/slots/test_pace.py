"""How much one request may carry: little enough for the lease on any line, and much on a fast one."""

import pytest

from nyala.engine.wal.slots.pace import BYTES_MAX, BYTES_MIN, Pace

TTL = 5.0


class Line:
    """Takes some seconds for each request, and some for its bytes."""

    def __init__(self, bytes_per_second: float, request_seconds: float) -> None:
        self.bytes_per_second = bytes_per_second
        self.request_seconds = request_seconds

    def put(self, pace: Pace, size: int) -> float:
        seconds = self.request_seconds + size / self.bytes_per_second
        pace.note(size, seconds)
        return seconds


@pytest.mark.parametrize("request_seconds", [0.001, 0.03, 0.3])
@pytest.mark.parametrize("bytes_per_second", [16e3, 100e3, 1e6, 5e6, 20e6, 1e9])
def test_no_request_takes_half_of_the_lease(bytes_per_second: float, request_seconds: float) -> None:
    pace, line = Pace(TTL), Line(bytes_per_second, request_seconds)
    took = [line.put(pace, pace.bytes) for _ in range(50)]
    assert max(took) < 0.5 * TTL
    assert pace.bytes == BYTES_MIN or took[-1] > 0.03 * TTL or pace.bytes == BYTES_MAX, "it does not hold back"


@pytest.mark.parametrize("request_seconds", [0.03, 0.3])
def test_a_fast_line_is_used_after_a_few_requests(request_seconds: float) -> None:
    pace, line = Pace(TTL), Line(100e6, request_seconds)
    for _ in range(5):
        line.put(pace, pace.bytes)
    assert pace.bytes == BYTES_MAX


def test_a_line_that_becomes_slow_is_given_less_at_once() -> None:
    pace = Pace(TTL)
    for _ in range(5):
        Line(100e6, 0.03).put(pace, pace.bytes)
    Line(1e6, 0.03).put(pace, pace.bytes)
    assert 100_000 < pace.bytes < 1_000_000


def test_small_requests_tell_nothing() -> None:
    pace = Pace(TTL)
    for seconds in (0.0, 0.001, 10.0):
        pace.note(300, seconds)
    assert pace.bytes == BYTES_MIN
