"""A process that stands by as a replica answers reads that may be behind, and nothing about now."""

from __future__ import annotations

import signal
import time
from contextlib import closing

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.schemas.errors import UnavailableError
from tests.campaigns.failover.name_process import NameProcess, Start
from tests.doubles.waiting import until

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


def follows(process: NameProcess) -> bool:
    lag = process.where().lag_seconds
    return lag is not None and lag < 1


def lag_metric(process: NameProcess) -> float | None:
    """What it exports as ``nyala_replica_lag_seconds``, if it does."""
    with closing(process.itself()) as itself:
        found = [each for each in itself.metrics().families if each.name == "nyala_replica_lag_seconds"]
    return found[0].samples[0].value if found else None


def test_reads_go_to_a_replica_until_it_takes_the_store_over(start: Start) -> None:
    holder = start()
    with closing(holder.store()) as store:
        table = Database(store).create_table("t", SCHEMA, ["id"])
        table.insert({"id": range(1_000), "v": range(1_000)})
        table.maintain("flush")
        before = store.now()
        table.upsert({"id": range(500, 1_500), "v": [7] * 1_000})
    replica = start("--replica")
    replica.becomes("standby")
    until(lambda: follows(replica))
    until(lambda: (lag := lag_metric(replica)) is not None and 0 < lag < 2)
    assert lag_metric(holder) is None, "it is behind nobody"

    with closing(replica.itself()) as itself:
        alone = Database(itself)
        assert alone.tables() == ["t"]
        table = alone.table("t")
        assert table.scan(max_staleness=0).count() == 1_500, "it has all that was acknowledged before the call"
        found = table.scan(max_staleness=2, ordered=True).to_arrow()
        assert found["v"].to_pylist() == [*range(500), *[7] * 1_000]
        assert table.scan(as_of=before).count() == 1_000
        assert table.scan(where="id = 1400", max_staleness=2).to_arrow()["v"].to_pylist() == [7]
        assert table.stats()["live_rows"] == 1_500
        for now in (
            table.scan().count,
            lambda: table.get((1,)),
            lambda: itself.now(),
            lambda: table.insert({"id": [9]}),
        ):
            with pytest.raises(UnavailableError, match="connect to grpc://") as refused:
                now()
            assert refused.value.locations == [holder.url]

    # A client of both reads from the replica while nobody has the store, and follows when it takes over.
    with closing(nyala.connect([holder.url, replica.url])) as both:
        table = both.table("t")
        assert table.scan(max_staleness=2).count() == 1_500
        holder.send(signal.SIGKILL)
        began = time.monotonic()
        assert table.scan(max_staleness=60).count() == 1_500
        assert table.scan(max_staleness=0, columns=["id"]).to_arrow().num_rows == 1_500
        assert time.monotonic() - began < 2, "nobody waited for the holder"
        replica.becomes("holder")
        assert lag_metric(replica) is None
        table.upsert({"id": [5_000], "v": [1]})
        assert table.scan(max_staleness=2).count() == table.scan().count() == 1_501
