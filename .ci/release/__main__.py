"""Build a release and try it:  PYTHONPATH=.ci python -m release [--commit HEAD] [--out dist]

Only the commit's files take part, and no others of the folder. Every file is checked against its checksum, installed
into an empty environment, and runs the example of the README; the wheel without kernels runs it as a client of a
server of the wheel that has them. The wheel for 64-bit Arm runs in an emulator, if there is one or root may install it.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from . import build, papers
from .shell import CommandError, run
from .trial import ArmEnvironment, Environment, arm_emulator, client_example, example

ROOT = Path(__file__).parents[2]
console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)


@dataclass
class Row:
    """A file of the release, and how it did."""

    file: Path
    installed_as: str = ""
    kernels: str = ""
    example: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", default="HEAD", help="what to release")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "dist", help="the folder for the files; a release in it is replaced"
    )
    options = parser.parse_args()
    out = options.out.resolve()
    try:
        clear(out)
        with tempfile.TemporaryDirectory(prefix="nyala-release-") as scratch:
            rows = make(options.commit, out, Path(scratch))
    except (CommandError, ValueError) as error:
        console.print(f"[red]no release[/]: {error}", markup=True)
        return 1
    console.print(table(rows, out))
    return 0


def clear(out: Path) -> None:
    """Remove an earlier release from the folder.

    Raises:
        ValueError: there is something else in it, which the checksums would name, too.
    """
    out.mkdir(parents=True, exist_ok=True)
    others = [each.name for each in out.iterdir() if each.name != papers.SUMS and not each.name.startswith("nyala-")]
    if others:
        raise ValueError(f"{out} has other files ({', '.join(sorted(others))}): move them, or use another --out")
    for old in out.iterdir():
        old.unlink()


def make(commit: str, out: Path, scratch: Path) -> list[Row]:
    """Build all files into ``out``, and try each."""
    if run("git", "status", "--porcelain", folder=ROOT):
        console.print(f"note: changes that are not committed are not in the release; it is {commit}")
    say = Steps()
    sources = build.clean_sources(ROOT, commit, scratch / "sources")
    jars = list(build.build_jars(sources, scratch))
    say(f"{', '.join(jar.name for jar in jars)} from the sources of {commit}")
    sdist = build.build_sdist(sources, out)
    plain = build.build_plain_wheel(sdist, sources, out, scratch)
    say("the sdist, and from it the wheel without kernels")
    kernels = build.compile_kernels(plain, scratch)
    say(f"kernels for {', '.join(build.MACHINES)}")
    wheels = {
        machine: build.build_kernel_wheel(sdist, kernels, machine, sources, out, scratch) for machine in build.MACHINES
    }
    say("the wheels with kernels")
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, plain, *wheels.values(), folder=scratch)
    for wheel in (plain, *wheels.values()):
        missing = {f"nyala/java/{jar.name}" for jar in jars} - set(zipfile.ZipFile(wheel).namelist())
        if missing:
            raise ValueError(f"{wheel.name} lacks {', '.join(missing)}")
    return try_all(sdist, plain, wheels, sources, scratch, say)


def try_all(
    sdist: Path, plain: Path, wheels: dict[str, Path], sources: build.Sources, scratch: Path, say: Steps
) -> list[Row]:
    """Install each file, run the example with it, and write the papers."""
    readme = (sources.folder / "README.md").read_text()
    out = sdist.parent
    project = tomllib.loads((sources.folder / "pyproject.toml").read_text())["project"]
    papers.write_sums(out)
    mine = wheels.pop(platform.machine(), None)
    if mine is None:
        raise ValueError(f"no wheel is for this machine ({platform.machine()}), so none can be tried")
    rows = [
        try_store(sdist, readme, Environment(scratch / "from-sdist")),
        try_store(mine, readme, Environment(scratch / "from-wheel"), has_kernels=True),
    ]
    say("the example of the README in this process")
    everything = Environment(scratch / "everything")
    everything.install(f"{mine}[{','.join(project['optional-dependencies'])}]")
    with everything.server() as uri:
        rows.append(try_client(plain, client_example(readme, uri), scratch / "client"))
        say("the same as a client of a server")
        everything.run_spark(uri)
        say("Spark reads the table with the jar that the wheel brings")
    for machine, wheel in wheels.items():
        emulator = arm_emulator(ROOT) if machine == "aarch64" else None
        if emulator is None:
            rows.append(Row(wheel, "-", machine, f"[yellow]not run[/]: this is {platform.machine()}"))
            continue
        rows.append(try_store(wheel, readme, ArmEnvironment(scratch / machine, emulator), has_kernels=True))
        say(f"the example on an emulated {machine}")
    name = f"{project['name']}-{project['version']}.cdx.json"
    rows.append(Row(papers.write_bill(everything.python, sources.folder, out / name), "-", "", "bill of materials"))
    rows.append(Row(papers.write_sums(out)))
    return rows


def try_store(file: Path, readme: str, place: Environment, has_kernels: bool = False) -> Row:
    """Install the engine and the server from a file as the README says, and run its example.

    Raises:
        ValueError: the file should bring kernels for this processor, and does not.
    """
    papers.check(file)
    place.install(f"{file}[server]", "pandas")
    prints = place.execute(example(readme))
    kernels = place.kernels()
    if has_kernels and (not kernels or place.compiled()):
        raise ValueError(f"{file.name} has no kernels that this processor can use: {place.compiled()} were compiled")
    return Row(file, "nyala\\[server]", kernels or "compiled on use", result(prints))


def try_client(file: Path, program: str, folder: Path) -> Row:
    """Install the client alone, and run the example over the network."""
    papers.check(file)
    place = Environment(folder)
    place.install(str(file), "pandas")
    return Row(file, "nyala", "none", result(place.execute(program)))


def result(prints: str) -> str:
    """Return that the example passed.

    Raises:
        ValueError: it does not print what it should.
    """
    if "Bergen" not in prints or "6.0" not in prints:
        raise ValueError(f"the example of the README prints something else:\n{prints}")
    return "[green]passed[/]"


class Steps:
    """Prints each step with its seconds when it is done."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, step: str) -> None:
        now = time.monotonic()
        console.print(f"{now - self._began:5.0f} s  {step}")
        self._began = now


def table(rows: list[Row], out: Path) -> Table:
    """Return the table of the release."""
    shown = Table(title=str(out))
    for name in ("file", "bytes", "sha256", "installed as", "kernels", "example"):
        shown.add_column(name, no_wrap=True, justify="right" if name == "bytes" else "left")
    for row in rows:
        size, digest = f"{row.file.stat().st_size:,}", papers.sha256(row.file)[:12]
        shown.add_row(row.file.name, size, digest, row.installed_as, row.kernels, row.example)
    return shown


if __name__ == "__main__":
    sys.exit(main())
