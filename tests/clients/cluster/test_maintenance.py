"""The maintenance of a table that several servers share: what all of them do, and a pause of all of them."""

from __future__ import annotations

import time

import pyarrow as pa

import nyala
from nyala.schemas.store.maintenance import PauseMaintenance
from tests.clients.cluster.cluster import Cluster


def test_all_servers_tell_and_pause(cluster: Cluster) -> None:
    db = cluster.connect()
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = db.create_table("t", schema, ["id"], partition_by=[nyala.partition.hash("id", buckets=12)])
    table.insert([{"id": number} for number in range(1000)])
    table.maintain("flush")
    found = db._store.maintenance()
    names = {each.name for each in found.done if each.name.endswith(": flush table t")}
    servers = {name.partition(":")[0] for name in names}
    assert len(servers) == len(names) >= 2 and servers == set(db._store.placement().servers)
    assert {each.table for each in found.done if each.name in names} == {"t"}
    ends = [each.ended for each in found.done]
    assert ends == sorted(ends, reverse=True)
    db._store.pause_maintenance(PauseMaintenance(op="compact", seconds=600))
    assert 590 < db._store.maintenance().paused["compact"] - time.time() < 610
    db._store.pause_maintenance(PauseMaintenance(seconds=0))
    assert db._store.maintenance().paused == {}
