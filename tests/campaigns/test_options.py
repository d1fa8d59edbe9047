"""Swarms: all options are drawn, a line gives them back, and they find what fixed options do not."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.fs.encryption.records import RecordWriter
from nyala.engine.options import StoreOptions
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.table.column import ColumnOptions
from nyala.schemas.table.table import TableDefinition, TableOptions, TableOptionsDict
from tests.campaigns import options as drawn
from tests.campaigns.crash.campaign import FEATURES as OF_CRASHES
from tests.campaigns.crash.images import LostError, campaign
from tests.campaigns.crash.workloads import WORKLOADS

ROOT = Path(__file__).parents[2]
EVERYTHING = drawn.Features(drawn.LOADS, allowed=drawn.ALLOWED)
SCHEMA = pa.schema([("k", pa.int64()), ("b", pa.bool_()), ("s", pa.string()), ("l", pa.list_(pa.int8()))])
_SEED = "add_argument(" + '"--seed"'
WITHOUT = {
    "tests/engine/home/bucket_faults_campaign.py": "bucket_faults",
    "tests/engine/filter/campaign.py": "filter",
    "tests/campaigns/corruption/fuzz_bytes.py": "fuzz_bytes",
    "tests/campaigns/attack/attack.py": "attack",
    "tests/campaigns/versions/campaign.py": "versions",
}
"""Campaigns that draw no options, and their names in tests/README.md, which says why."""


def test_every_option_is_drawn_or_has_a_reason_not_to_be() -> None:
    choices = {**drawn.FEW_ROWS, **EVERYTHING.choices()}
    of_stores = choices.keys() & StoreOptions.model_fields.keys()
    assert of_stores | drawn.NOT_OF_STORES.keys() == StoreOptions.model_fields.keys()
    assert not of_stores & drawn.NOT_OF_STORES.keys()
    of_tables = {*drawn.OF_TABLES, "history_max_age_seconds"}
    assert of_tables <= choices.keys()
    assert (
        of_tables | drawn.NOT_OF_TABLES.keys()
        == TableOptions.model_fields.keys()
        == set(TableOptionsDict.__annotations__)
    )
    number = drawn.Options(dict.fromkeys(drawn.OF_COLUMNS, 1))
    of_columns = number.of_column(drawn.LogicalType("int64"), "k").keys()
    assert of_columns | drawn.NOT_OF_COLUMNS.keys() == ColumnOptions.model_fields.keys()


def test_each_value_that_may_be_drawn_is_one_that_the_option_takes() -> None:
    for values in (drawn.FEW_ROWS, drawn.LOADS, {"durability": ("os",), "maintenance": ("off",)}):
        for name, some in values.items():
            for value in some:
                assert getattr(StoreOptions.model_validate({name: value}), name) == value
    for name, some in drawn.OF_TABLES.items():
        assert all(getattr(TableOptions.model_validate({name: value}).checked(), name) == value for value in some)
    for number in range(30):
        with drawn.in_force(drawn.Options(dict.fromkeys(drawn.OF_COLUMNS, number))):
            TableDefinition.from_arrow("t", SCHEMA, ["k"], drawn.columns(SCHEMA))


def test_a_round_leaves_out_a_random_half_and_the_seed_draws_it_again() -> None:
    rounds = [drawn.draw(Random(number), EVERYTHING) for number in range(200)]
    assert rounds == [drawn.draw(Random(number), EVERYTHING) for number in range(200)]
    possible = EVERYTHING.choices()
    assert {name for each in rounds for name in each.values} == possible.keys()
    average = sum(len(each.values) for each in rounds) / len(rounds)
    assert 0.4 < average / len(possible) < 0.55
    assert not any(each.is_in_bucket and each.values.keys() & {drawn.ENCRYPTION, "processes"} for each in rounds)
    without = drawn.Features(drawn.LOADS, without={"flush_bytes", drawn.ENCRYPTION})
    assert not any(
        {"flush_bytes", "home", drawn.ENCRYPTION} & drawn.draw(Random(n), without).values.keys() for n in range(50)
    )


@given(st.integers())
def test_a_line_gives_the_options_back(seed: int) -> None:
    options = drawn.draw(Random(seed), EVERYTHING)
    assert drawn.Options.parse(str(options)) == options


def test_a_line_that_is_none_says_so() -> None:
    for line in ("nonsense=1", "flush_bytes"):
        with pytest.raises(argparse.ArgumentTypeError, match=line):
            drawn.Options.parse(line)


def test_options_in_force_reach_stores_tables_and_other_processes(tmp_path: Path) -> None:
    base = StoreOptions(flush_bytes=7, scan_threads=3)
    line = "budget_bytes=16777216 encodings=3 encryption=on processes=2 row_column=true scan_threads=1"
    with drawn.in_force(line):
        found = drawn.stored(base)
        assert (found.flush_bytes, found.scan_threads, found.memory_bytes) == (7, 1, 8 << 20)
        assert found.key is not None
        words = drawn.flags(scan_threads=3, flush_bytes=7)
        assert words[:4] == ["--set", "scan_threads=1", "--set", "flush_bytes=7"]
        assert words[-4:-1] == ["--processes", "2", "--key-command"]
        columns = drawn.columns(SCHEMA, {"s": {"merge": "append"}})
        assert columns and columns["s"].merge == "append" and all(each.encoding for each in columns.values())
        assert drawn.table(history_max_age_seconds=5, ttl=None) == {"row_column": True, "history_max_age_seconds": 5}
        program = "from tests.campaigns import options; print(options.current())"
        told = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
        assert told.stdout.strip() == line
        drawn.store_at(tmp_path).close()
    assert drawn.stored(base) == base and drawn.columns(SCHEMA) is None and not drawn.table() and not drawn.flags()
    with pytest.raises(InvalidArgumentError, match="encrypted"):
        drawn.store_at(tmp_path)


def test_a_round_prints_its_options_and_those_of_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    drawn.add_to(parser)
    swarm = drawn.swarm_of(EVERYTHING, parser.parse_args([], argparse.Namespace(seed=5)))
    with swarm.round(0) as first, swarm.round(1) as second:
        assert drawn.current() == second != first
    assert capsys.readouterr().out == f"--options '{first}'\n--options '{second}'\n"
    again = drawn.swarm_of(EVERYTHING, parser.parse_args(["--options", str(first)], argparse.Namespace(seed=6)))
    with pytest.raises(SystemExit), again.round(7) as third:
        sys.exit(1)
    assert third == first
    assert capsys.readouterr().out == f"--options '{first}'\nfailed with --options '{first}'\n"


def test_every_campaign_takes_options() -> None:
    campaigns = [
        str(file.relative_to(ROOT))
        for file in (ROOT / "tests").rglob("*.py")
        if _SEED in (text := file.read_text()) and ".add_to(parser)" not in text
    ]
    assert sorted(campaigns) == sorted([*WITHOUT, "tests/night.py"])
    reasons = (ROOT / "tests/README.md").read_text().partition("These campaigns draw no options")[2].split("\n\n")[1]
    assert all(f"`{name}`" in reasons for name in WITHOUT.values())


def test_a_swarm_finds_what_shows_with_one_option_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of an encrypted store is not synced: no campaign with fixed options sees that."""
    monkeypatch.setattr(RecordWriter, "sync", lambda self: None)

    def crashes() -> None:
        campaign(WORKLOADS["load"], images=1, deep_every=1_000, every=9)

    crashes()
    swarm = drawn.Swarm(OF_CRASHES, seed=1)
    failed = []
    for number in range(4):
        try:
            with swarm.round(number) as options:
                crashes()
        except LostError:
            failed.append(options)
    assert failed and all(options.key for options in failed)
