"""Results: kept as JSON, shown as tables, written into bench/README.md between its markers."""

import json
import os
import platform
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

BENCH = Path(__file__).parent
RESULTS = BENCH / "results"
README = BENCH / "README.md"
BEGIN, END = "<!-- {name}: begin -->", "<!-- {name}: end -->"

LIBRARIES = (
    "nyala",
    "numpy",
    "numba",
    "pyarrow",
    "duckdb",
    "deltalake",
    "pylance",
    "lancedb",
    "pyiceberg",
    "chdb",
    "blosc2",
    "pyspark",
)

COUNTED = ("rows", "calls")
"""Units without parts."""


@dataclass(frozen=True)
class Result:
    """All rounds of one case on one subject; ``unit`` is that of every sample."""

    case: str
    subject: str
    unit: str
    samples: list[float]
    beyond: bool = False
    """The subject was ended here: it needs more than that."""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)


@dataclass(frozen=True)
class Suite:
    """The results of one run of one set of cases, and what they were measured on."""

    name: str
    settings: dict[str, Any]
    results: list[Result]
    machine: dict[str, Any] = field(default_factory=lambda: machine())

    def save(self) -> Path:
        RESULTS.mkdir(exist_ok=True)
        file = RESULTS / f"{self.name}.json"
        file.write_text(json.dumps(asdict(self), indent=1) + "\n")
        return file

    @classmethod
    def load(cls, file: Path) -> "Suite":
        stored = json.loads(file.read_text())
        results = [Result(**result) for result in stored["results"]]
        return cls(stored["name"], stored["settings"], results, stored["machine"])

    @property
    def subjects(self) -> list[str]:
        return list(dict.fromkeys(result.subject for result in self.results))

    def cases(self) -> dict[str, dict[str, Result]]:
        """Return case -> subject -> result, in the order measured."""
        table: dict[str, dict[str, Result]] = {}
        for result in self.results:
            table.setdefault(result.case, {})[result.subject] = result
        return table


def machine() -> dict[str, Any]:
    """Describe this machine by what matters to the figures; nothing that tells whose it is."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30),
        "system": platform.system(),
        "python": platform.python_version(),
        "load_at_the_end": round(os.getloadavg()[0], 1),
        "libraries": {name: found for name in LIBRARIES if (found := _version(name))},
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def shown(value: float, unit: str) -> str:
    """Return a figure with three significant digits, seconds in the unit that reads best."""
    if unit == "s":
        scale, unit = next(
            step for step in ((1, "s"), (1e3, "ms"), (1e6, "us")) if value * step[0] >= 1 or step[0] == 1e6
        )
        value *= scale
    digits = 0 if value >= 100 or unit in COUNTED else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}"


def print_suite(suite: Suite, console: Console) -> None:
    """Show the medians of a suite on the terminal."""
    table = Table(title=f"{suite.name}: medians")
    table.add_column("case")
    for subject in suite.subjects:
        table.add_column(subject, justify="right")
    for case, row in suite.cases().items():
        table.add_row(case, *_cells(suite, row))
    console.print(table)


def markdown(suite: Suite) -> str:
    """Return a suite as a Markdown table of medians, with what it was measured on below."""
    lines = [_line(["", *suite.subjects]), _line(["---", *["---:"] * len(suite.subjects)])]
    lines += [_line([case, *_cells(suite, row)]) for case, row in suite.cases().items()]
    return "\n".join([*lines, "", _measured_on(suite)])


def _cells(suite: Suite, row: dict[str, Result]) -> Iterable[str]:
    found = [row.get(subject) for subject in suite.subjects]
    return ["" if result is None else text(result) for result in found]


def text(result: Result) -> str:
    """Return a figure as its cell of a table has it."""
    return f"{'> ' if result.beyond else ''}{shown(result.median, result.unit)}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _measured_on(suite: Suite) -> str:
    box = suite.machine
    libraries = ", ".join(f"{name} {number}" for name, number in box["libraries"].items())
    settings = ", ".join(f"{name} {value:,}" for name, value in suite.settings.items())
    return (
        f"Medians; {settings}. {box['processor']}, {box['cores']} cores, {box['memory_gib']} GiB, load "
        f"{box['load_at_the_end']} at the end; Python {box['python']}, {libraries}."
    )


def write_section(name: str, content: str, page: Path | None = None) -> None:
    """Put ``content`` between the markers of ``name`` in a page, by default bench/README.md; the rest stays."""
    page = page or README
    before, begin, rest = page.read_text().partition(BEGIN.format(name=name))
    _, end, after = rest.partition(END.format(name=name))
    if not begin or not end:
        raise ValueError(f"{page.parent.name}/{page.name} has no markers for {name}")
    page.write_text(f"{before}{begin}\n\n{content}\n\n{end}{after}")
