"""Makers: which process made each file of a store in a bucket.

A file is called by its number, and the reign in it counts the claims of the log. If the objects of a bucket are put
back to an earlier state, reigns and numbers repeat, and another process makes other files under names that were there
before. What a machine has kept by a name would be believed. So whoever keeps bytes of files, or compares files by their
names, asks who made them: a process has a uuid of its own each time it claims a log, which each of its slots has.

The manifest notes the maker of each reign of which it names a file. A file that the log attaches is of the reign of its
slot. A file of which nothing was noted, by an older version, is taken for one of the process that has the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from . import files
from .manifest import Manifest


def with_makers(manifest: Manifest, known: Mapping[int, str]) -> Manifest:
    """Return the manifest with the makers of all files that it names, and of the newest reign. ``known`` are the makers
    by the slots of the log, at least that of the newest; none: this is a directory, or a copy that nobody opened."""
    if not known:
        return manifest
    newest = max(known)
    reigns = sorted({*_reigns(manifest), newest})
    found = {reign: manifest.makers.get(reign) or known.get(reign) or known[newest] for reign in reigns}
    return manifest.model_copy(update={"makers": found})


def maker_of(makers: Mapping[int, str], path: str) -> str:
    """Return who made the file of a rowset, by the ``makers`` of the manifest that names it; empty if that was not
    noted, or it is none."""
    return makers.get(reign_of(path), "")


def reign_of(path: str) -> int:
    """Return the reign in which the file of a rowset was made; 0 if it is none."""
    directory, _, name = path.rpartition("/")
    number = name.partition(".")[0]
    is_one = directory.startswith(f"{files.ROOT}/") and number.isdecimal()
    return files.reign_of(int(number)) if is_one else 0


def _reigns(manifest: Manifest) -> Iterator[int]:
    for tablet in (tablet for table in manifest.tables for tablet in table.tablets):
        for rowset in (*tablet.rowsets, *(tablet.arriving.rowsets if tablet.arriving else ())):
            yield from map(files.reign_of, rowset.file_ids)
