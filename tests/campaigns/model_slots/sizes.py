"""How far the model goes: small sizes for each run of the tests, those of an earlier study, and larger ones.

The study's program found more states at the same size: for three processes 3,108,090, where there are 2,046,770 here.
It told apart in which order requests were sent that are under way together, though they arrive in any order, and what
a process remembers that it never looks at again: the end it saw before it held the log, when its last slot was sent,
and how often. With both counted as one, it finds a quarter less at two ticks (437,259 states become 321,301), and
this model a few more than that (327,913), since its files have names.
"""

from dataclasses import dataclass

from .moves import MoveSize


@dataclass(frozen=True, slots=True)
class Size:
    """Bounds that make the number of states finite."""

    processes: int = 2
    slots: int = 5
    writes: int = 1
    """Of each process; ``total_writes`` of all."""
    total_writes: int = 2
    crashes: int = 0
    ticks: int = 4
    doubles: int = 0
    """How often a PUT is sent again."""
    releases: bool = False
    forces: bool = False
    """Whether a process may claim the log of a holder that lives."""
    deletes_files: bool = False
    chunks: bool = False
    """Whether writes are in chunks beside the slots."""
    clocks: bool = False
    """Whether timestamps matter; the clocks of processes differ then."""


SMALL = {
    "slots": Size(),
    "crashes": Size(slots=4, ticks=2, crashes=1, total_writes=1),
    "doubles": Size(slots=4, ticks=2, doubles=1, total_writes=1),
    "files": Size(ticks=2, deletes_files=True, total_writes=1),
    "releases": Size(ticks=2, releases=True, total_writes=1),
    "forces": Size(slots=4, ticks=3, forces=True, total_writes=1),
    "forces and releases": Size(ticks=2, forces=True, releases=True, total_writes=1),
    "chunks": Size(ticks=2, chunks=True, total_writes=1),
    "chunks and clocks": Size(slots=4, ticks=2, chunks=True, clocks=True, total_writes=1),
    "clocks": Size(slots=4, ticks=2, clocks=True),
    "clocks and releases": Size(ticks=1, clocks=True, releases=True, total_writes=1),
}
SMALL_MOVES = {
    "a move": MoveSize(),
    "there and back": MoveSize(((0, 1), (1, 0))),
    "two at once": MoveSize(((0, 1), (0, 1)), copies=1),
}
STUDY = {
    "slots": Size(slots=6, ticks=5),
    "crashes": Size(slots=5, ticks=4, crashes=1),
    "doubles": Size(slots=5, ticks=3, doubles=1),
    "three processes": Size(processes=3, slots=5, ticks=3, total_writes=2),
    "files": Size(slots=5, ticks=4, deletes_files=True),
    "releases": Size(slots=5, ticks=4, releases=True),
    "forces": Size(slots=5, ticks=4, forces=True),
    "files and releases": Size(slots=5, ticks=3, deletes_files=True, releases=True),
    "releases and crashes": Size(slots=6, ticks=2, releases=True, crashes=1, total_writes=1),
    "releases and doubles": Size(slots=5, ticks=2, releases=True, doubles=1, total_writes=1),
    "releases of three": Size(processes=3, slots=5, ticks=2, releases=True, total_writes=1),
    "releases of a longer log": Size(slots=7, ticks=2, releases=True, total_writes=1),
    "chunks": Size(slots=6, ticks=4, chunks=True),
    "chunks and crashes": Size(slots=5, ticks=3, chunks=True, crashes=1, total_writes=1),
    "chunks and releases": Size(slots=5, ticks=4, chunks=True, releases=True),
    "clocks": Size(slots=5, ticks=3, clocks=True, total_writes=1),
}
LARGER = {
    "slots": Size(slots=7, ticks=5, writes=2, total_writes=3),
    "crashes and doubles": Size(slots=5, ticks=3, crashes=1, doubles=1),
    "three processes": Size(processes=3, slots=6, ticks=3, total_writes=2),
    "all at once": Size(slots=5, ticks=2, crashes=1, releases=True, deletes_files=True),
    "clocks": Size(slots=5, ticks=4, clocks=True, releases=True),
}
STUDY_MOVES = {
    "a move under three reigns": MoveSize(reigns=(3, 3), writes=2),
    "there and back with two writes": MoveSize(((0, 1), (1, 0)), writes=2),
    "two moves at once": MoveSize(((0, 1), (0, 1))),
}
LARGER_MOVES = {
    "two moves at once under three reigns": MoveSize(((0, 1), (0, 1)), reigns=(3, 3)),
    "there and back under three reigns": MoveSize(((0, 1), (1, 0)), reigns=(3, 3)),
}
SIZES: dict[str, dict[str, Size | MoveSize]] = {
    "small": {**SMALL, **SMALL_MOVES},
    "study": {**STUDY, **STUDY_MOVES},
    "larger": {**LARGER, **LARGER_MOVES},
}
