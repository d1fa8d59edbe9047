"""The campaign of kills is worth what it notices: faults are planted, mostly without Spark, and each must be caught."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest

import nyala
from tests.clients.spark import kills
from tests.clients.spark.kill_steps import Rows, Step
from tests.clients.spark.kills import Campaign, DriverProcess
from tests.dose import IS_NIGHT, dose

Act = Callable[[nyala.Database, Rows, Rows], Any]
"""Does what a step should, to the rows before it, with the rows after it in mind. It returns an error, if any."""


@dataclass
class Planted(Campaign):
    """A campaign whose steps ``act`` carries out."""

    act: Act = lambda db, before, after: change(db, before, after)
    reply: dict[str, Any] | None = None
    """The answer of the driver."""

    def start_driver(self) -> DriverProcess:
        return Mock()

    def carry_out(self, step: Step, faults: Sequence[str]) -> dict[str, Any] | None:
        self.act(self.steps.db, self.steps.rows, step.after)
        return self.reply


def change(db: nyala.Database, before: Rows, after: Rows) -> None:
    """Make rows what they shall be, in one commit."""
    changed = {key: v for key, v in after.items() if before.get(key) != v}
    with db.transaction() as made:
        made.upsert("t", {"id": list(changed), "v": list(changed.values())})
        made.delete("t", {"id": [key for key in before if key not in after]})


def half(before: Rows, after: Rows) -> Rows:
    keys = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    kept = after | {key: before[key] for key in keys[::2] if key in before}
    return {key: v for key, v in kept.items() if key in before or key not in keys[::2]}


def change_in_two_commits(db: nyala.Database, before: Rows, after: Rows) -> None:
    change(db, before, half(before, after))
    change(db, half(before, after), after)


FAULTS: dict[str, tuple[Act, dict[str, Any] | None, str]] = {
    "a row is lost": (
        lambda db, a, b: change(db, a, dict(list(b.items())[1:])),
        {"result": None},
        "1 rows lost, 0 too",
    ),
    "a row is too many": (lambda db, a, b: change(db, a, b | {-1: 1}), {"result": None}, "0 rows lost, 1 too many"),
    "a value is wrong": (lambda db, a, b: change(db, a, b | {min(b): -5}), {"result": None}, "1 with other values"),
    "nothing is done": (lambda db, a, b: None, {"result": None}, "MERGE: [1-9]"),
    "half is done": (lambda db, a, b: change(db, a, half(a, b)), {"result": None}, "MERGE: "),
    "half is done, and the driver killed": (
        lambda db, a, b: change(db, a, half(a, b)),
        None,
        "whose driver was killed",
    ),
    "two commits": (change_in_two_commits, {"result": None}, "2 commits"),
    "an error that nobody made": (lambda db, a, b: None, {"error": "CONFLICT: 1"}, "CONFLICT: 1"),
    "done, and failed": (change, {"error": "Python worker failed to connect back"}, "which failed: "),
}


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    with Planted(tmp_path_factory.mktemp("kills"), Random(1)) as made:
        yield made


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_noticed(campaign: Planted, name: str) -> None:
    campaign.act, campaign.reply, told = FAULTS[name]
    with pytest.raises(AssertionError, match=told):
        campaign.step("merge")
    campaign.steps.tables["t"] = campaign.steps.table_rows()


@pytest.mark.parametrize("act", [change, lambda db, a, b: None], ids=["done", "not done"])
def test_what_a_killed_driver_did_is_whole_or_nothing(campaign: Planted, act: Act) -> None:
    campaign.act, campaign.reply = act, None
    campaign.step("merge")
    assert campaign.steps.rows == campaign.steps.table_rows()


def test_streams_that_lose_or_add_changes_are_noticed(campaign: Planted) -> None:
    campaign.act, campaign.reply = change, {"result": None}
    for name in ("copy", "journal"):
        with pytest.raises(AssertionError, match=f"the {name}: [1-9][0-9]* (rows|changes) lost, 0"):
            campaign.steps.stream(name, "nyala").check(None)
    db = campaign.steps.db
    changes = db.table("t").changes(campaign.steps.since, every=True).to_arrow()
    journal = changes.rename_columns({"_timestamp": "at", "_op": "op"}).select(["at", "id", "op", "v"])
    db.table("journal").insert(journal)
    campaign.steps.stream("journal", "nyala").check(None)
    db.table("journal").insert({"at": [1], "id": [1], "op": ["insert"], "v": [1]})
    with pytest.raises(AssertionError, match="0 changes lost, 1 nobody made"):
        campaign.steps.stream("journal", "nyala").check(None)


@pytest.mark.night
def test_what_stays_staged_is_noticed(campaign: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    db = campaign.steps.db
    db.transaction().upsert("t", {"id": [1], "v": [1]})
    with monkeypatch.context() as patched, pytest.raises(AssertionError, match=r"staged files are left: .*stage"):
        patched.setattr(kills, "EXPIRING", kills.STAGING)
        patched.setattr(kills, "EXPIRY_SECONDS", 1)
        campaign.expire()
    campaign.expire()
    assert campaign.left_over == 1
    assert campaign.steps.table_rows() == campaign.steps.rows


KILLS = {"merge": "server at staging"} | dose(
    {},
    {
        "write": "executor at staging",
        "bulk_import": "executor",
        "direct_read": "worker",
        "plain_stream_copy": "server",
        "stream_journal": "driver at commit",
        "append": "executor",
    },
)
"""Steps on Spark, with what is killed in each."""


@pytest.mark.spark
def test_a_few_kills_on_spark(tmp_path: Path, shim: Path | None) -> None:
    """Most of its time is the start of drivers. What is killed when depends on the machine, as do slow tasks."""
    if shim is None:
        pytest.skip("the shim needs javac: `.ci/java.sh javac` installs it on Debian")
    with Campaign(tmp_path, Random(1), shim) as campaign:
        for name, fault in KILLS.items():
            campaign.step(name, fault)
        for _ in range(dose(0, 8)):
            if campaign.speculated:
                break
            campaign.step("append")
        if IS_NIGHT:
            campaign.finish()
        assert campaign.steps_done.total() + campaign.ended.total() >= len(KILLS)
        assert campaign.killed["stream of journal", "driver at commit"] == dose(0, 1)
        assert campaign.killed.total() >= dose(1, 4), campaign.report()
        assert campaign.speculated >= dose(0, 1), campaign.report()
        with pytest.raises(AssertionError, match=r"[1-9][0-9]* rows doubled"):
            campaign.plant("doubled")
