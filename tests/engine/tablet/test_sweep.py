"""The sweep of tablets' files when a store is opened: what nobody names goes, unless a later reign may use its name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.manifest.files import REIGN_BITS, ROOT
from nyala.engine.tablet.open import sweep

_NUMBERS = (1, 7, *((reign << REIGN_BITS) + 5 for reign in (1, 2, 3)))


@pytest.mark.parametrize("reign", range(5))
def test_files_whose_names_may_come_again_stay(reign: int) -> None:
    """Of a bucket that was put back, they are leftovers: a holder's request to delete one may come after the next
    holder, whose numbers are those of the history that is gone, has made a file of its name."""
    fs = MemoryFileSystem()
    directory = f"{ROOT}/4"
    for each in (ROOT, directory):
        fs.make_directory(each)
    for number in _NUMBERS:
        fs.create(f"{directory}/{number}.base").close()
    fs.create(f"{directory}/no number").close()
    environment, manifest = cast(Any, SimpleNamespace(fs=fs)), cast(Any, SimpleNamespace(tables=()))
    swept = sweep(environment, manifest, reign << REIGN_BITS)
    stay = [number for number in _NUMBERS if number >> REIGN_BITS > reign]
    assert sorted(swept) == sorted(
        f"{directory}/{name}" for name in [*(f"{each}.base" for each in set(_NUMBERS) - set(stay)), "no number"]
    )
    assert fs.exists(directory) == bool(stay)
    assert sorted(fs.list(directory)) == sorted(f"{each}.base" for each in stay) if stay else True
