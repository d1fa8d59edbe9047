"""The long doses: what failed once, then every test, the ones that are left out by day too, and each campaign in turn.

    python tests/night.py
    python tests/night.py --seed 7 --share 0.1 --only fuzz

Without a seed one is drawn, and printed. A line is printed when a step begins, with its command, and one when it ends;
the output of the step is in ``build/night/NAME.log``. After a step that fails the others go on: the table at the end
names it, and the exit code is 1. ``build/night/failed_seeds.txt`` gets a line for `failed_seeds.txt`, whose lines each
night runs first. Corpora stay where the steps keep them: ``.hypothesis`` and ``build/fuzz``.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "build" / "night"
FAILED = ROOT / "tests" / "failed_seeds.txt"
_SHARE_OF_FAILED = 0.05
"""Of the dose of a step whose seed failed once."""
_SEEDS = 1_000_000
_OPTIONS = re.compile(r"failed with (--options '[^']*')")
_REPLAY = re.compile(r"python (-m \S+ --replay \d+)")
_SEED = re.compile(r"\bseed (\d+)")
_LONGEST_SECONDS = 4 * 3600.0
_LAST_LINES = 5


@dataclass(frozen=True)
class Step:
    """One command, in which ``{seed}`` and ``{dose}`` are filled in; ``dose`` is that of a whole night."""

    name: str
    command: str
    dose: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)

    def words(self, seed: int, share: float) -> list[str]:
        """Return the command for a seed and a share of the dose."""
        dose = str(max(1, round(self.dose * share)))
        return [word.replace("{seed}", str(seed)).replace("{dose}", dose) for word in shlex.split(self.command)]


@dataclass(frozen=True)
class Failed:
    """A line of `failed_seeds.txt`: a step with a seed that failed once."""

    step: str
    seed: int
    how: str
    """What else is given: ``--options '...'``; or the whole command; or nothing."""
    why: str

    @classmethod
    def parse(cls, line: str) -> Failed:
        """Return what a line says.

        Raises:
            ValueError: it has not four parts, or its seed is no number.
        """
        step, seed, how, why = (part.strip() for part in line.split("|"))
        return cls(step, int(seed), how, why)

    def __str__(self) -> str:
        return f"{self.step} | {self.seed} | {self.how} | {self.why}"

    def words(self) -> list[str]:
        """Return the command."""
        if self.how and not self.how.startswith("--options "):
            return shlex.split(self.how)
        step = next(step for step in STEPS if step.name == self.step)
        words, options = step.words(self.seed, _SHARE_OF_FAILED), shlex.split(self.how)
        return words + ([f"OPTIONS={options[1]}"] if options and words[0] == "make" else options)


def failed_seeds() -> Iterator[Failed]:
    """Yield the lines of `failed_seeds.txt`."""
    for line in FAILED.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            yield Failed.parse(line)


def failure_of(step: Step, seed: int, log: str) -> Failed:
    """Return the line for a step that failed: with the seed, the options or the command that its log names last."""
    if replays := _REPLAY.findall(log):
        return Failed(step.name, seed, f".venv/bin/python {replays[-1]}", "why?")
    seeds, options = _SEED.findall(log), _OPTIONS.findall(log)
    return Failed(step.name, int(seeds[-1]) if seeds else seed, options[-1] if options else "", "why?")


_ALL = {"NIGHT": "1"}
STEPS = (
    Step("tests", "make test", environment=_ALL),
    Step("tests-jit", "make test ARGS=tests/engine", environment={"NYALA_KERNELS": "jit"}),
    Step("docs", "make docs"),
    Step("release", "make release"),
    Step("filters", "make filters COUNT={dose} SEED={seed}", 20_000),
    Step("fuzz", "make fuzz MINUTES={dose} SEED={seed}", 60),
    Step("fuzz-bytes", "make fuzz-bytes SECONDS={dose} SEED={seed}", 300),
    Step("crash", ".venv/bin/python tests/campaigns/crash/campaign.py --minutes {dose} --seed {seed}", 30),
    Step("kill9", "make kill9 CYCLES={dose} SEED={seed}", 100),
    Step("kill9-embedded", "make kill9 WAY=embedded CYCLES={dose} SEED={seed}", 50),
    Step("kill9-openings", "make kill9 WAY=openings CYCLES={dose} SEED={seed}", 20),
    Step("kill9-orders", "make kill9 WAY=orders CYCLES={dose} SEED={seed}", 1_000),
    Step("kill9-retries", "make kill9 WAY=retries CYCLES={dose} SEED={seed}", 30),
    Step("kill9-scans", "make kill9 WAY=scans CYCLES={dose} SEED={seed}", 30),
    Step("kill9-sessions", "make kill9 WAY=sessions CYCLES={dose} SEED={seed}", 30),
    Step("stops", "make stops CYCLES={dose} SEED={seed}", 50),
    Step("full-disk", "make full-disk CYCLES={dose} SEED={seed}", 50),
    Step("race", "make race SECONDS={dose} SEED={seed}", 600),
    Step("live", "make live SECONDS={dose} SEED={seed}", 600),
    Step("isolation", "make isolation SECONDS={dose} SEED={seed}", 300),
    Step("isolation-server", "make isolation WAY=server SECONDS={dose} SEED={seed}", 300),
    Step("isolation-servers", "make isolation WAY=servers SECONDS={dose} SEED={seed}", 600),
    Step("isolation-failover", "make isolation WAY=failover SECONDS={dose} SEED={seed}", 600),
    Step("isolation-replica", "make isolation WAY=replica SECONDS={dose} SEED={seed}", 300),
    Step("nested", "make nested COUNT={dose} SEED={seed}", 2_000),
    Step("versions", "make versions SEED={seed}"),
    Step("simulate", "make simulate MINUTES={dose} START={seed}000000", 60),
    Step("simulate-cluster", "make simulate WHAT=cluster MINUTES={dose} START={seed}000000", 60),
    Step("decay", "make decay FLIPS={dose} SEED={seed}", 300),
    Step("leases", "make leases SECONDS={dose} SEED={seed}", 300),
    Step("slots-model", "make slots-model SIZES=study"),
    Step("bucket-faults", "make bucket-faults MINUTES={dose} SEED={seed}", 40),
    Step("failover", "make failover MINUTES={dose} SEED={seed} LEASE=2", 30),
    Step("failover-moto", "make failover WAY=moto MINUTES={dose} SEED={seed} LEASE=2", 20),
    Step("moves", "make moves SECONDS={dose} SEED={seed}", 300),
    Step("moves-fail", "make moves WAY=directory SECONDS={dose} SEED={seed}", 300),
    Step("jobs", "make jobs SECONDS={dose} SEED={seed}", 300),
    Step("pairs", "make pairs COUNT={dose} SEED={seed}", 100),
    Step("attack", "make attack SECONDS={dose} SEED={seed}", 5),
    Step("churn", "make churn ROUNDS={dose} SEED={seed}", 9),
    Step("soak", "make soak MINUTES={dose} SEED={seed}", 60),
    Step("mirror", "make mirror SECONDS={dose} SEED={seed}", 600),
    Step("kafka", "make kafka MESSAGES={dose} SEED={seed}", 3_000_000),
    Step("streaming", "make streaming RESTARTS={dose} SEED={seed}", 50),
    Step("kills", "make kills SECONDS={dose} SEED={seed}", 600),
)


class Night:
    """The steps that were run, as a table."""

    def __init__(self, seed: int) -> None:
        self.console = Console(highlight=False)
        self.summary = Table("step", "minutes", "result", "last line", title=f"seed {seed}")
        self.failures = 0

    def run(self, name: str, words: list[str], environment: Mapping[str, str]) -> str | None:
        """Run a command; return its output if it fails."""
        self.console.print(f"{time.strftime('%H:%M')} {shlex.join(words)}", markup=False)
        began, log = time.monotonic(), LOGS / f"{name.replace(' ', '-')}.log"
        code = run(words, log, environment)
        minutes, lines = (time.monotonic() - began) / 60, last_lines(log)
        result = "ok" if code == 0 else f"FAILED ({code})"
        self.console.print(f"      {result} after {minutes:.1f} min, {log.relative_to(ROOT)}")
        self.summary.add_row(name, f"{minutes:.1f}", result, escape(lines[-1]) if lines else "")
        if code == 0:
            return None
        self.failures += 1
        self.console.print("\n".join(f"        {line}" for line in lines), markup=False)
        return log.read_text(errors="replace")


def main() -> int:
    """Run the steps; return 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="by default another one each time")
    parser.add_argument("--share", type=float, default=1.0, help="of the dose of each campaign, for a short night")
    parser.add_argument("--only", nargs="*", choices=[step.name for step in STEPS], help="these steps")
    options = parser.parse_args()
    seed = secrets.randbelow(_SEEDS) if options.seed is None else options.seed
    night, chosen = Night(seed), [step for step in STEPS if not options.only or step.name in options.only]
    night.console.print(f"seed {seed}")
    LOGS.mkdir(parents=True, exist_ok=True)
    names = {step.name: step.environment for step in chosen}
    for number, failed in enumerate(failed_seeds(), 1):
        if failed.step in names:
            night.run(f"again {number} {failed.step} {failed.seed}", failed.words(), names[failed.step])
    lines = []
    for step in chosen:
        if (output := night.run(step.name, step.words(seed, options.share), step.environment)) is not None:
            lines.append(f"{failure_of(step, seed, output)}\n")
    night.console.print(night.summary)
    if lines:
        with (LOGS / FAILED.name).open("a") as file:
            file.writelines(lines)
        night.console.print(f"for {FAILED.name}:\n{''.join(lines)}", markup=False, soft_wrap=True)
    return 1 if night.failures else 0


def run(words: list[str], log: Path, environment: Mapping[str, str]) -> int:
    """Run a command with its output in ``log``; return its exit code, 124 if it took too long."""
    with log.open("wb") as output:
        output.write(f"{shlex.join(words)}\n".encode())
        output.flush()
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(_LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            return 124
        finally:
            end_group(process)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a step, so that it takes no time from the next."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()


def last_lines(log: Path) -> list[str]:
    """Return the end of a log."""
    return log.read_text(errors="replace").strip().splitlines()[-_LAST_LINES:]


if __name__ == "__main__":
    sys.exit(main())
