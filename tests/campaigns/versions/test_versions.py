"""Stores and clients of earlier versions, beside those of this checkout."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.campaigns.versions.builds import BUILDS, TODAY, Build, Failed, Install
from tests.campaigns.versions.campaign import NEWER, PROGRAM, WAYS, Versions, refusal, standby_refusal
from tests.campaigns.versions.program import Model
from tests.dose import by_night, dose


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("build", by_night(BUILDS, day=BUILDS[:1]), ids=lambda build: build.name)
def test_old_and_new_work_together(build: Build, way: str, tmp_path: Path) -> None:
    if not build.is_there():
        pytest.skip(f"the history lacks {build.commit}")
    print(WAYS[way](Versions(build, tmp_path, seed=1, steps=20, newer=dose(("order",), NEWER))))


def test_rows_that_are_wrong_are_seen(tmp_path: Path) -> None:
    """Another seed expects other rows."""
    install = Install(TODAY, tmp_path)
    target, notes = str(tmp_path / "store"), str(tmp_path / "notes")
    install.run(PROGRAM, "write", target, notes, "1", "0", "10")
    install.run(PROGRAM, "read", target, notes, "1", "10")
    with pytest.raises(Failed, match=r"rows of .* are wrong"):
        install.run(PROGRAM, "read", target, notes, "2", "10")


def test_a_crash_is_no_refusal() -> None:
    assert refusal(Failed("read", "nyala.schemas.errors.CorruptionError: t needs what is newer")) == (
        "t needs what is newer"
    )
    for last in ("KeyError: 'ttl'", "nyala.schemas.errors.InternalError: no", ""):
        with pytest.raises(Failed):
            refusal(Failed("read", last))


def test_a_standby_says_why_it_does_not_take_the_store_over() -> None:
    unknown = "log/18 at byte 8: slot format version 2, kind 2 is unknown to this program"
    refused = "12:00 ERROR a: the store a could not be opened; standing by"
    earlier = f"{refused}\n\nnyala.schemas.errors.CorruptionError: {unknown}"
    later = f"12:00 WARNING a: the store a could not be taken over now: {unknown}"
    for log in (earlier, later):
        assert standby_refusal(Failed("read", f"nyala.schemas.errors.UnavailableError: gave up\n{log}")) == (
            f"stands by: {unknown}"
        )
    with pytest.raises(Failed):
        standby_refusal(Failed("read", "nyala.schemas.errors.UnavailableError: gave up"))


def test_the_steps_follow_from_the_seed_and_do_everything() -> None:
    model, again, ops = Model(3), Model(3), set[str]()
    for _ in range(80):
        name, op, rows, _ = model.step()
        assert again.step()[2].equals(rows)
        ops.add(f"{name} {op}")
        assert isinstance(rows, pa.Table)
    assert len(ops) == 2 * 4, ops
