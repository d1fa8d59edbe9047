"""Jobs on a table of three servers, whose tablets have equal numbers: by the placement, by the URL of any server."""

from __future__ import annotations

import pickle
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from nyala.clients.flight import staging_put
from nyala.clients.jobs.files import load_job
from nyala.clients.jobs.link import StoreLink
from nyala.clients.jobs.splits import check_cover, split_table
from nyala.jobs import backup, checksum, copy_table, export, load, restore, verify
from nyala.schemas.errors import ConflictError, InvalidArgumentError
from nyala.schemas.rows.scan import ScanSpec
from tests.clients.cluster.cluster import Cluster
from tests.clients.cluster.job_campaign import (
    KEYS,
    SCHEMA,
    SPLIT_BYTES,
    Campaign,
    Moving,
    alone,
    by_key,
    make_table,
    rows,
    ways,
)


@pytest.fixture
def servers() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory() as folder:  # short: the path of a socket has few characters
        running = Cluster(Path(folder), "abc")
        make_table(running)
        yield running
        running.close()


def test_exports_copies_and_checksums(servers: Cluster, tmp_path: Path) -> None:
    expected = by_key(rows(range(KEYS)))
    single = alone()
    single.create_table("t", SCHEMA, ["id"]).insert(rows(range(KEYS)))
    for number, way in enumerate(ways(servers)):
        made = export(way, "t", tmp_path / str(number), split_bytes=SPLIT_BYTES)
        assert made.rows == KEYS
        assert by_key(pq.read_table(made.folder)) == expected
        some = export(way, "t", tmp_path / f"some {number}", where="id > 150 AND n < 420000", columns=["id", "n"])
        assert sorted(pq.read_table(some.folder)["id"].to_pylist()) == list(range(151, 420))
        assert copy_table(way, single, "t", name=f"copy {number}", split_bytes=SPLIT_BYTES).rows == KEYS
        assert by_key(single.table(f"copy {number}").scan().to_arrow()) == expected
        found = checksum(way, "t", split_bytes=SPLIT_BYTES)
        assert found.is_same(checksum(single, "t"))
        assert len(found.tablets) == len({(each.server, each.tablet) for each in found.tablets}) == 12
        assert verify(way, single, "t").equal
    servers.connect().table("t").upsert(rows([17, 444], 5))
    for way in ways(servers):
        found = verify(way, single, "t")
        assert sorted(each.key["id"] for each in found.differences) == [17, 444]
        assert len(found.tablets) == 2
    single.close()


def test_a_load_as_one_commit_that_is_staged_in_several_parts(
    servers: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_put, "KEPT_BYTES_MAX", 1 << 9)
    monkeypatch.setattr(load_job, "BATCH_ROWS", 20)
    for number, way in enumerate(ways(servers), 1):
        given = rows(range(number * KEYS, (number + 1) * KEYS))
        pq.write_table(given, tmp_path / f"{number}.parquet", row_group_size=50)
        assert load(way, "t", tmp_path / f"{number}.parquet", op="insert", atomic=True).applied == KEYS
        assert servers.connect().table("t").count() == (number + 1) * KEYS


def test_backups_and_restores(servers: Cluster, tmp_path: Path) -> None:
    table = servers.connect().table("t")
    expected = {}
    chosen = ways(servers)
    for turn in range(6):
        made = backup(chosen[turn % len(chosen)], "t", tmp_path, split_bytes=SPLIT_BYTES)
        assert made.kind == ("full" if turn == 0 else "increment")
        expected[made.until] = by_key(table.scan(as_of=made.until).to_arrow())
        table.upsert(rows(range(turn * 70, turn * 70 + 200), turn + 1))
        table.delete_ignore({"id": list(range(turn * 31, turn * 31 + 25))})
        for place in Random(turn).sample(servers.connect().table("t").tablets(), 2):
            servers.connect().move_tablet("t", place.tablet, "abc"[turn % 3], server=place.server)
        if turn == 3:
            table.alter().split_partition(250).apply()
        if turn == 4:
            table.alter().drop_range_partition(None, 100).add_range_partition(None, 100).apply()
            table.upsert(rows(range(40, 60), 9))
    for until, found in expected.items():
        with alone() as target:
            assert restore(target, tmp_path, "t", at=until).verified
            assert by_key(target.table("t").scan().to_arrow()) == found
    for number, way in enumerate(ways(servers)):
        restore(way, tmp_path, "t", name=f"again {number}")
        assert by_key(servers.connect().table(f"again {number}").scan().to_arrow()) == expected[max(expected)]


def test_a_job_follows_tablets_that_move_while_it_runs(servers: Cluster, tmp_path: Path) -> None:
    expected = by_key(rows(range(KEYS)))
    with Moving(servers, Random(1)) as moving:
        for turn, way in enumerate(ways(servers)):
            made = export(way, "t", tmp_path / str(turn), split_bytes=SPLIT_BYTES, workers=2)
            assert by_key(pq.read_table(made.folder)) == expected
            assert checksum(way, "t").rows == KEYS
    assert moving.moves


def test_every_job_under_moves(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), "abc")
        campaign = Campaign(cluster, 5, tmp_path)
        campaign.run(12)
        cluster.close()
    assert isinstance(campaign.counts, Counter) and campaign.counts["moves"] > 3


def test_parts_that_do_not_hold_every_key_once_are_refused(servers: Cluster) -> None:
    """Whatever server or race left a part out, doubled it, or cut it with a gap: nothing is read."""
    table = servers.connect().table("t")
    spec = ScanSpec(table="t", as_of=table._store.now(), split_bytes=SPLIT_BYTES, all_parts=True)
    plan, told = table._store.plan(spec), table._store.tablets("t")
    check_cover("t", plan.splits, plan.schema_version, told)
    assert {str(split.partition) for split in plan.splits} == {str(each) for each in told.partitions.tablets()}

    def refused(splits: list, why: str, version: int = plan.schema_version) -> None:
        with pytest.raises(ConflictError, match=why):
            check_cover("t", splits, version, told)

    refused(plan.splits, "altered", plan.schema_version + 1)
    first = plan.splits[0]
    others = [each for each in plan.splits if each.partition != first.partition]
    refused(others, "no server has the range .* buckets")
    refused([*plan.splits, first], "overlap or have gaps")
    refused([*plan.splits, first.model_copy(update={"server": "z"})], "both hold the range")
    by_tablet = Counter((split.server, split.tablet) for split in plan.splits)
    ((cut, _),) = by_tablet.most_common(1)
    parts = [each for each in plan.splits if (each.server, each.tablet) == cut]
    assert len(parts) > 2
    for gone in parts:
        refused([each for each in plan.splits if each is not gone], "overlap or have gaps")
    assert len({each.tablet for each in plan.splits}) < 12  # numbers alone do not tell tablets apart


def test_links_to_servers_go_to_other_processes(servers: Cluster) -> None:
    db = servers.connect()
    for way in ways(servers):
        link = pickle.loads(pickle.dumps(StoreLink.to(way)))
        assert len({place.server for place in link.service.tablets("t").tablets}) == 3
        assert link.location in [member.location for member in servers.members.values()]
    (split, *_) = split_table(db._store, ScanSpec(table="t", as_of=db.now())).splits
    with alone() as single, pytest.raises(InvalidArgumentError, match="does not share tables"):
        StoreLink.to(single).scan(split)
