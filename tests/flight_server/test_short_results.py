"""Short results of DoGet: one message, and nothing is left of the call."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from nyala.flight_server.settings.config import ServerConfig
from nyala.schemas.protocol.service import StoreService
from nyala.schemas.protocol.verb import Kind
from tests.doubles.waiting import until
from tests.flight_server.served import Served, code_of


def messages(client: fl.FlightClient, ticket: bytes) -> list[pa.RecordBatch]:
    reader = client.do_get(fl.Ticket(ticket))
    found: list[pa.RecordBatch] = []
    while True:
        try:
            found.append(reader.read_chunk().data)
        except StopIteration:
            return found


@pytest.mark.parametrize("more", [b"", b',"marks":true', b',"ordered":true,"limit":100', b',"columns":["price"]'])
def test_a_short_result_is_one_message(served: Served, more: bytes) -> None:
    for first in range(0, 60, 20):
        served.put("homes", served.rows(20, first))
    (batch,) = messages(served.client, b'{"table":"homes"%b}' % more)
    assert sorted(batch.column("price").to_pylist()) == list(range(60))
    until(lambda: not served.server.calls._running)
    assert served.server.admission.running == 0


def test_no_rows_are_a_schema_and_no_columns_are_rows(served: Served) -> None:
    assert served.get({"table": "homes"}).num_rows == 0
    served.put("homes", served.rows(7))
    (batch,) = messages(served.client, b'{"table":"homes","columns":[]}')
    assert (batch.num_rows, batch.num_columns) == (7, 0)


def test_a_long_result_is_whole(served: Served) -> None:
    for first in range(0, 60_000, 10_000):
        served.put("homes", served.rows(10_000, first))
    for marks in (b"", b',"marks":true'):
        found = pa.Table.from_batches(messages(served.client, b'{"table":"homes"%b}' % marks))
        assert sorted(found.column("id").to_pylist()) == list(range(60_000))


def test_repeated_tickets_read_what_is_there_now(served: Served) -> None:
    for number in range(5):
        assert served.get(b'{"table":"homes"}').num_rows == number
        served.put("homes", served.rows(1, number))
    with pytest.raises(fl.FlightServerError) as caught:
        served.get(b'{"table":"homes","limit":-1}')
    assert code_of(caught.value) == "INVALID_ARGUMENT"


def test_a_client_that_never_reads_keeps_its_place_only_for_a_time(
    store: StoreService, serve: Callable[..., Served]
) -> None:
    served = serve(store, ServerConfig(stalled_seconds_max=0.5))
    served.put("homes", served.rows(5_000))
    readers = [served.client.do_get(fl.Ticket(b'{"table":"homes"}')) for _ in range(20)]
    until(lambda: served.server.admission.count(Kind.SCAN) == 0)
    assert len(readers) == 20
    assert len(fl.connect(served.url).do_get(fl.Ticket(b'{"table":"homes"}')).read_all()) == 5_000
