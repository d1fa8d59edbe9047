"""All rows of a table are updated ten times over in bounded memory, and the disk comes back.

    python tests/campaigns/churn/churn.py --rows 5000000 --rounds 10 --memory-mb 512

A process holds the store, its background maintenance on, its history a second long. Its resident memory is sampled:
it must stay under the budget and ``--more-mb`` until maintenance has settled and all rows were looked at. Then the
table's files may take ``--ratio`` times what a freshly compacted copy of its rows takes, whose making is not
measured. Exit code 1 when one of the two is violated.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.campaigns import options as drawn

_SAMPLE_SECONDS = 0.02
MIB = 1 << 20
_OPTIONS = ("scan_threads", "load_threads", "wal_segment_bytes", "scan_batch_bytes", "history_gc_bytes")
FEATURES = drawn.Features({name: drawn.LOADS[name] for name in _OPTIONS}, allowed={"durability"})
"""Others move memory, or the size on the disk, which are measured."""


@dataclass
class Resident:
    """Samples of a process's resident memory: the largest of each phase, in bytes."""

    process_id: int
    peak: dict[str, int] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Sample until ``stop`` or the end of the process."""
        while not self._stop.wait(_SAMPLE_SECONDS):
            try:
                text = Path(f"/proc/{self.process_id}/status").read_text()
            except OSError:
                return
            for line in text.splitlines():
                name, _, value = line.partition(":")
                if name in ("VmRSS", "RssAnon", "RssFile"):
                    self.peak[name] = max(self.peak.get(name, 0), int(value.split()[0]) << 10)

    def take(self) -> dict[str, int]:
        """Return the peaks since the last call."""
        peak, self.peak = self.peak, {}
        return peak

    def stop(self) -> None:
        """End the sampling."""
        self._stop.set()


@dataclass
class Result:
    """What a run has shown."""

    peak_bytes: int = 0
    table_bytes: int = 0
    copy_bytes: int = 1

    @property
    def ratio(self) -> float:
        """The table's bytes on disk for each of the copy's."""
        return self.table_bytes / self.copy_bytes

    def violations(self, memory_mb: int, more_mb: int, ratio: float) -> list[str]:
        """Return what was promised and not kept."""
        found = []
        if self.peak_bytes > (memory_mb + more_mb) * MIB:
            found.append(f"{self.peak_bytes / MIB:.0f} MB were resident, {memory_mb} + {more_mb} MB are allowed")
        if self.ratio > ratio:
            found.append(f"the table takes {self.ratio:.2f} times its compacted size, {ratio} are allowed")
        return found


def run(directory: Path, rows: int, rounds: int, memory_mb: int) -> Result:
    """Churn a store in a directory and print a line for each phase."""
    program = Path(__file__).with_name("store_process.py")
    words = [sys.executable, str(program), str(directory), str(rows), str(rounds), str(memory_mb)]
    result = Result()
    print(_HEAD)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        resident = Resident(process.pid)
        watcher = threading.Thread(target=resident.watch, daemon=True)
        watcher.start()
        for facts in _lines(process):
            peaks = resident.take()
            if facts["phase"] != "copy":
                result.peak_bytes = max(result.peak_bytes, peaks.get("VmRSS", 0))
            print(_line(facts, peaks), flush=True)
            if facts["phase"] in ("checked", "copy"):
                setattr(result, "table_bytes" if facts["phase"] == "checked" else "copy_bytes", facts["table_bytes"])
        resident.stop()
        watcher.join()
    if process.returncode:
        raise AssertionError(f"the store's process ended with {process.returncode}")
    return result


def _lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


_HEAD = "phase      seconds   rows/s   RSS MB  anon MB  file MB  stores MB  table MB  redo MB  undo MB  rowsets  deltas"


def _line(facts: dict[str, Any], peaks: dict[str, int]) -> str:
    seconds, rows = facts.get("seconds", 0.0), facts.get("rows", 0)
    sizes = [peaks.get(name, 0) for name in ("VmRSS", "RssAnon", "RssFile")]
    sizes += [facts.get(name, 0) for name in ("memory_bytes", "table_bytes", "redo_bytes", "undo_bytes")]
    widths = (9, 9, 9, 11, 10, 9, 9)
    cells = "".join(f"{size / MIB:{width}.0f}" for size, width in zip(sizes, widths, strict=True))
    rate = rows / seconds if seconds else 0
    counts = f"{facts.get('rowsets', 0):9}{facts.get('delta_files', 0):8}"
    return f"{facts['phase']:10}{seconds:8.1f}{rate:9,.0f}{cells}{counts}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--memory-mb", type=int, default=512)
    parser.add_argument("--more-mb", type=int, default=300)
    parser.add_argument("--ratio", type=float, default=1.3)
    parser.add_argument("--seed", type=int, default=0, help="draws options")
    drawn.add_to(parser)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with drawn.swarm_of(FEATURES, options).round(0):
        with tempfile.TemporaryDirectory(prefix="nyala-churn-") as directory:
            result = run(Path(directory), options.rows, options.rounds, options.memory_mb)
        print(f"at most {result.peak_bytes / MIB:.0f} MB resident; {result.ratio:.2f} times the compacted size on disk")
        if violations := result.violations(options.memory_mb, options.more_mb, options.ratio):
            print("VIOLATED: " + "; ".join(violations))
            sys.exit(1)


if __name__ == "__main__":
    main()
