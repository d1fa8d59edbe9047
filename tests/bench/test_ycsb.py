"""YCSB's mixes are what their names say, and a short run leaves a figure for every store."""

from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from bench.ycsb import run, servers
from bench.ycsb.mixes import DISTRIBUTIONS, MIXES, operations, ranks, scattered


def test_shares_of_the_mixes() -> None:
    for mix in MIXES.values():
        assert sum(mix.shares.values()) == pytest.approx(1)
        found = Counter(islice(operations(mix, np.random.default_rng(1)), 20_000))
        assert {name: found[name] / 20_000 for name in mix.shares} == pytest.approx(mix.shares, abs=0.02)


def test_zipf_prefers_few_keys_and_uniform_none() -> None:
    records = 1_000
    for distribution in DISTRIBUTIONS:
        found = Counter(islice(ranks(records, distribution, np.random.default_rng(2)), 50_000))
        assert min(found) >= 0 and max(found) < records
        harmonic = sum(1 / rank**0.99 for rank in range(1, records + 1))
        expected = 1 / harmonic if distribution == "zipf" else 1 / records
        assert found[0] / 50_000 == pytest.approx(expected, rel=0.3)


@pytest.mark.parametrize("records", [1, 10, 1_000, 99_991])
def test_scattering_is_a_permutation(records: int) -> None:
    assert {scattered(rank, records) for rank in range(records)} == set(range(records))


def test_records_are_as_many_as_asked() -> None:
    batches = list(servers.records(120_001))
    assert sum(batch.num_rows for batch in batches) == 120_001
    for batch in batches:
        batch.validate(full=True)
    assert {len(text) for text in batches[-1].column(3).to_pylist()} == {100}


def test_a_short_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def at_hand(stores: dict[str, type]) -> dict[str, type]:
        return {name: store for name, store in stores.items() if not name.startswith(("PostgreSQL", "DuckDB"))}

    monkeypatch.setattr(run, "available", at_hand)
    monkeypatch.setattr(run, "CLIENTS", (2,))
    monkeypatch.setattr(run, "DISTRIBUTIONS", ("zipf",))
    suite = run.measure(1_000, 0.1, tmp_path / "work", Console(quiet=True))
    assert len(suite.cases()) == (len(MIXES) + len(run.LARGE_MIXES)) * len(run.FIGURES)
    for case, row in suite.cases().items():
        assert set(row) == set(at_hand(servers.LARGE if "cache" in case else servers.SERVERS))
        if case.endswith(": p50"):
            at_99 = suite.cases()[case.replace(": p50", ": p99")]
            assert all(row[name].median <= at_99[name].median for name in row)
