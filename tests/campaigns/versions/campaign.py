"""Old beside new: stores and clients of earlier versions with those of this checkout.

    python tests/campaigns/versions/campaign.py --seed 0
    python tests/campaigns/versions/campaign.py --only 0.1.0 sql

For each of `BUILDS`, with the steps of `program`:

* **store**: the old version writes a store and is killed; today's opens it, reads now and earlier moments, and writes;
  the old one opens it again, reads and writes; today's has the last word;
* **newer**: today's makes a table that needs each of `NEWER`; the old version either reads the other tables, or refuses
  the store and changes nothing in it;
* **wire**: an old client works with today's server, and today's client with an old server;
* **bucket**: holder and standby of two versions under a client that writes: an upgrade, and then the way back, unless
  the old one says why it does not take the store;
* **roll back**: the same way back after today's version has made a table that needs each of `NEWER`: the old one either
  takes the store and reads the other tables, or refuses it and says why, and today's finds all.

A table at the end says how each went; docs/compatibility.md has it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import IO

import pyarrow.flight as fl
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.campaigns.versions.builds import BUILDS, ROOT, TODAY, Build, Failed, Install

PROGRAM = str(Path(__file__).with_name("program.py"))
NEWER = "expiry", "order", "nested", "computed", "row_column", "quota", "grants"
_READY_SECONDS = 300.0
_TAKE_OVER_SECONDS = 20.0
_LEASE = "--set=lease_seconds=2"


class Versions:
    """The work of one seed with one old build, in one folder."""

    def __init__(self, build: Build, work: Path, seed: int, steps: int = 60, newer: Sequence[str] = NEWER) -> None:
        self._old, self._new = Install(build, work), Install(TODAY, work)
        self._work, self._seed, self._steps, self._newer = work, str(seed), steps, newer

    def _write(self, install: Install, target: str, notes: Path, first: int, last: int, *more: str) -> None:
        install.run(PROGRAM, "write", target, str(notes), self._seed, str(first), str(last), *more)

    def _read(self, install: Install, target: str, notes: Path, last: int) -> int:
        return int(install.run(PROGRAM, "read", target, str(notes), self._seed, str(last)))

    def _place(self, name: str) -> tuple[str, Path]:
        place = self._work / f"{self._old.build.name}-{name}"
        return str(place), Path(f"{place}.notes")

    def store(self) -> str:
        """Take a store from the old version to today's and back, twice."""
        (target, notes), steps = self._place("store"), self._steps
        self._write(self._old, target, notes, 0, steps, "kill")
        self._read(self._new, target, notes, steps)
        self._write(self._new, target, notes, steps, 2 * steps)
        rows = self._read(self._new, target, notes, 2 * steps)
        before = content_of(Path(target))
        try:
            self._read(self._old, target, notes, 2 * steps)
        except Failed as error:
            why = refusal(error)
            assert content_of(Path(target)) == before, "the old version refused the store, and changed it"
            self._read(self._new, target, notes, 2 * steps)
            return f"{rows:,} rows; the old one refuses: {why}"
        self._write(self._old, target, notes, 2 * steps, 3 * steps, "kill")
        rows += self._read(self._new, target, notes, 3 * steps)
        return f"{rows:,} rows, there and back"

    def newer(self) -> str:
        """Let today's version use what is newer, and let the old one open the store."""
        results = []
        for name in self._newer:
            target, notes = self._place(f"newer-{name}")
            self._write(self._new, target, notes, 0, 20)
            self._new.run(PROGRAM, "newer", target, str(notes), self._seed, name)
            before = content_of(Path(target))
            try:
                self._read(self._old, target, notes, 20)
                results.append(f"{name}: reads")
            except Failed as error:
                results.append(f"{name}: {refusal(error)}")
                assert content_of(Path(target)) == before, f"the old version refused {name}, and changed the store"
            self._read(self._new, target, notes, 20)
            self._new.run(PROGRAM, "is_newer", target, str(notes), self._seed, name)
        return "; ".join(results)

    def wire(self) -> str:
        """Let clients of each version work with a server of the other one."""
        rows = 0
        for server, client in ((self._new, self._old), (self._old, self._new)):
            target, notes = self._place(f"wire-{server.build.name}")
            with served(server, "--data", target) as (url, _):
                self._write(client, url, notes, 0, self._steps)
                rows += self._read(client, url, notes, self._steps)
                rows += self._read(server, url, notes, self._steps)
        return f"{rows:,} rows"

    def bucket(self) -> str:
        """Hand a store in a bucket to a process of today's version and back, while a client writes."""
        if not self._old.build.has_buckets:
            return "has no buckets"
        (target, notes), steps = self._place("bucket"), self._steps
        Path(target).mkdir()
        data = "--data", f"file://{target}", "--name", "a", _LEASE
        place = self._work / f"{self._old.build.name}-cache"
        changes = [(self._new, signal.SIGTERM), (self._old, signal.SIGKILL), (self._new, signal.SIGKILL)]
        rows, first = 0, 0
        with ExitStack() as servers:
            url, holder = servers.enter_context(served(self._old, *data, f"--set=bucket_cache={place}-0"))
            for number, (install, way) in enumerate(changes, 1):
                log = servers.enter_context(tempfile.TemporaryFile("w+"))
                cache = f"--set=bucket_cache={place}-{number}"
                next_url, standby = servers.enter_context(served(install, *data, cache, is_standby=True, log=log))
                writing = self._old.start(  # clients are the last to be upgraded
                    PROGRAM, "write", f"{url},{next_url}", str(notes), self._seed, str(first), str(first + steps)
                )
                time.sleep(2)
                holder.send_signal(way)
                holder.wait(60)
                output, errors = writing.communicate(timeout=240)
                try:
                    if writing.returncode:
                        raise Failed("the client of the upgrade", output + errors)
                    rows += self._read(self._old, next_url, notes, first + steps)
                except Failed as error:
                    if install is self._new:
                        raise
                    why = standby_refusal(Failed(str(error), error.errors + ended(standby, log)))
                    url, _ = servers.enter_context(served(self._new, *data, f"--set=bucket_cache={place}-last"))
                    return f"{rows + self._read_rest(url, notes):,} rows; the old one {why}"
                first += steps
                url, holder = next_url, standby
        return f"{rows:,} rows, {len(changes)} changes of the holder"

    def _read_rest(self, url: str, notes: Path) -> int:
        """Read what a client has written that failed: its last step may be there, or not."""
        done = json.loads(notes.read_text().splitlines()[-1])[0] + 1
        try:
            return self._read(self._new, url, notes, done)
        except Failed:
            return self._read(self._new, url, notes, done + 1)

    def roll_back(self) -> str:
        """Let today's version use what is newer in a bucket, and let the old one take the store."""
        if not self._old.build.has_buckets:
            return "has no buckets"
        self._old.run("-m", "nyala", "warmup")  # else it compiles its kernels while it should take the store over
        results = []
        for name in self._newer:
            target, notes = self._place(f"back-{name}")
            Path(target).mkdir()
            data = "--data", f"file://{target}", "--name", "a", _LEASE
            caches = (f"--set=bucket_cache={target}-cache-{number}" for number in count())
            with served(self._new, *data, next(caches)) as (url, _):
                self._write(self._new, url, notes, 0, 20)
                self._new.run(PROGRAM, "newer", url, str(notes), self._seed, name)
            try:
                with served(self._old, *data, next(caches), seconds=_TAKE_OVER_SECONDS) as (url, _):
                    self._read(self._old, url, notes, 20)
                results.append(f"{name}: reads")
            except Failed as error:
                results.append(f"{name}: {standby_refusal(error)}")
            with served(self._new, *data, next(caches)) as (url, _):
                self._read(self._new, url, notes, 20)
                self._new.run(PROGRAM, "is_newer", url, str(notes), self._seed, name)
        return "; ".join(results)


def refusal(error: Failed) -> str:
    """Return how an old version refused a store. Raises Failed, unless it said why in an error of its own."""
    raised = re.findall(r"^(?:nyala\.[\w.]+\.)(\w+): (.*)$", error.errors, re.MULTILINE)
    if not raised or raised[-1][0] == "InternalError":
        raise error
    return raised[-1][1]


def standby_refusal(error: Failed) -> str:
    """Return why a standby of an old version did not take a store over. Raises Failed, unless it said so in its log."""
    reasons = re.findall(r"WARNING .* could not be taken over now: (.*)$", error.errors, re.MULTILINE)
    if not reasons and re.search(r"ERROR .* could not be opened; standing by$", error.errors, re.MULTILINE):
        return f"stands by: {refusal(error)}"
    if not reasons:
        raise error
    fields = re.findall(r"^([a-z_]+(?:\.\w+)*)$", error.errors, re.MULTILINE)
    return f"stands by: {reasons[0]} {', '.join(fields)}".rstrip()


def ended(process: subprocess.Popen[str], log: IO[str]) -> str:
    """Kill a process, and return all that it wrote."""
    process.kill()
    process.wait()
    log.seek(0)
    return log.read()


def content_of(store: Path) -> str:
    """Return a digest of all files of a store but its lock."""
    digest = hashlib.blake2b()
    for path in sorted(store.rglob("*")):
        if path.is_file() and path.name != "lock":
            digest.update(f"{path.relative_to(store)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


@contextmanager
def served(
    install: Install,
    *options: str,
    is_standby: bool = False,
    seconds: float = _READY_SECONDS,
    log: IO[str] | None = None,
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Serve a store by a version; yield the location when it is ready, and the process. It writes to ``log``, or to a
    file of its own. Raises Failed, with all that the process wrote, if it is not ready in time."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"grpc://127.0.0.1:{free.getsockname()[1]}"
    with nullcontext(log) if log else tempfile.TemporaryFile("w+") as log:
        process = install.start("-m", "nyala.flight_server", *options, "--listen", url, output=log)
        try:
            if not _is_ready(url, process, "where" if is_standby else "tables", seconds):
                log.seek(0)
                raise Failed(f"a server of {install.build.name}", log.read())
            yield url, process
        finally:
            process.kill()
            process.wait()


def _is_ready(url: str, process: subprocess.Popen[str], action: str, seconds: float) -> bool:
    """Wait until a server answers; return whether it does."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        with fl.connect(url) as client:
            try:
                list(client.do_action(fl.Action(action, b"{}")))
            except fl.FlightUnavailableError:
                time.sleep(0.1)
                continue
        return True
    return False


WAYS: dict[str, Callable[[Versions], str]] = {
    "store": Versions.store,
    "newer": Versions.newer,
    "wire": Versions.wire,
    "bucket": Versions.bucket,
    "roll back": Versions.roll_back,
}


def main() -> int:
    """Do all ways with the builds of the command line; return 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60, help="so many writes by each process")
    parser.add_argument("--only", nargs="*", choices=[build.name for build in BUILDS], help="these versions")
    parser.add_argument("--ways", nargs="*", choices=list(WAYS), default=list(WAYS))
    options = parser.parse_args()
    console, summary = Console(width=160), Table("version", "commit", "way", "result", title=f"seed {options.seed}")
    failures = 0
    for build in BUILDS:
        if options.only and build.name not in options.only:
            continue
        if not build.is_there():
            console.print(f"{build.name}: {build.commit} is not in the history here; fetch all of it")
            failures += 1
            continue
        (ROOT / "build").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=ROOT / "build") as work:
            versions = Versions(build, Path(work), options.seed, options.steps)
            for way in options.ways:
                began = time.monotonic()
                try:
                    result = WAYS[way](versions)
                except (Failed, AssertionError) as error:
                    failures += 1
                    result = f"FAILED: {error}"
                console.print(f"{build.name} {way}, {time.monotonic() - began:.0f} s: {result}", markup=False)
                summary.add_row(build.name, build.commit, way, result.splitlines()[0])
    console.print(summary)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
