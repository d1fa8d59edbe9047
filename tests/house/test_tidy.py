"""The house rules as tests: what a reviewer should never have to say twice.

Each rule is a small function from one parsed file to its findings. A file that must break a rule
stands in EXCEPTIONS with the reason; an exception that excuses nothing is itself a failure, and
each rule is shown a planted violation, so that none can rot into always passing.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("nyala", "pyspark_nyala", "schemas", "engine", "flight_server", "clients")
EVERYTHING = (*PRODUCT, "tests", "bench", "examples")

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

# Entry points: started by name, imported by nobody.
ENTRY_POINTS = {"nyala.__main__", "nyala.jobs", "nyala.flight_server.__main__"}


@dataclass(frozen=True)
class Source:
    """One Python file; ``path`` is relative to the checkout, with forward slashes."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def module(self) -> str:
        """The dotted name it imports as: engine/wal/writer.py is nyala.engine.wal.writer."""
        parts = self.path.removesuffix(".py").removesuffix("/__init__").split("/")
        return ".".join(parts if parts[0] in ("nyala", "pyspark_nyala") else ["nyala", *parts])

    @property
    def is_package(self) -> bool:
        return self.path.endswith("__init__.py")


Finding = tuple[int, str]
Rule = Callable[[Source], Iterator[Finding]]


@cache
def sources(folders: tuple[str, ...]) -> list[Source]:
    """Every Python file under ``folders``."""
    files = sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py"))
    return [parsed(file) for file in files]


@cache
def parsed(file: Path) -> Source:
    return Source(file.relative_to(ROOT).as_posix(), file.read_text())


# --- helpers over the syntax tree ---


def imported(source: Source) -> Iterator[tuple[int, str]]:
    """Yield (line, absolute name) of all imports; ``from a import b`` yields a and a.b."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = absolute(source, node)
            yield node.lineno, base
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def absolute(source: Source, node: ast.ImportFrom) -> str:
    """Return the absolute name of the package or module that a from-import names."""
    if node.level == 0:
        return node.module or ""
    parts = source.module.split(".")
    kept = len(parts) - node.level + (1 if source.is_package else 0)
    return ".".join([*parts[:kept], *([node.module] if node.module else [])])


def imports_of(source: Source, *banned: str) -> Iterator[Finding]:
    """Yield the imports of a banned module or of anything inside it, once a line."""
    seen = set()
    for line, name in imported(source):
        hit = any(name == word or name.startswith(word + ".") for word in banned)
        if hit and line not in seen:
            seen.add(line)
            yield line, f"imports {name}"


def written(node: ast.AST) -> str:
    """Return a dotted name as it is written, ``a.b.c``; the part before a call or an index is left out."""
    if isinstance(node, ast.Attribute):
        return f"{written(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def calls(source: Source) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name as written) for every call of a name or an attribute."""
    for node in source.nodes:
        if isinstance(node, ast.Call):
            yield node.lineno, written(node.func)


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return how many lines a docstring takes; contracts may be as long as they need."""
    if ast.get_docstring(node) is None:
        return 0
    first = node.body[0]
    return (first.end_lineno or first.lineno) - first.lineno + 1


# --- the rules ---


def file_length(source: Source) -> Iterator[Finding]:
    """A file is one concept."""
    count = source.text.count("\n")
    if count > FILE_LINES_MAX:
        yield count, f"{count} lines, at most {FILE_LINES_MAX}"


def function_length(source: Source) -> Iterator[Finding]:
    """A function fits a screen."""
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1 - docstring_lines(node)
            if count > FUNCTION_LINES_MAX:
                yield node.lineno, f"{node.name} has {count} lines, at most {FUNCTION_LINES_MAX}"


def ascii_only(source: Source) -> Iterator[Finding]:
    """What looks alike is alike: tests write other letters as escapes."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if not line.isascii():
            yield number, "has a character outside ASCII"


def module_docstring(source: Source) -> Iterator[Finding]:
    """Every module says what it is."""
    if source.tree.body and ast.get_docstring(source.tree) is None:
        yield 1, "has no docstring"


def no_unfinished(source: Source) -> Iterator[Finding]:
    """What is not done is not in the tree."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if re.search(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b", line):
            yield number, "is unfinished"


def no_pickle(source: Source) -> Iterator[Finding]:
    """Unpickling runs code that whoever wrote the bytes chose."""
    yield from imports_of(source, "pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle")
    for node in source.nodes:
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            yield node.value.lineno, "allows pickle"


def no_print(source: Source) -> Iterator[Finding]:
    """Only the command line talks to a terminal; the rest logs."""
    if not source.path.startswith("clients/cli/"):
        yield from ((line, "prints") for line, name in calls(source) if name == "print")


def no_parallel_kernels(source: Source) -> Iterator[Finding]:
    """numba's parallel loops abort a process in which two threads enter them."""
    for node in source.nodes:
        if isinstance(node, ast.Name | ast.Attribute) and written(node).endswith("prange"):
            yield node.lineno, "uses prange"
        if isinstance(node, ast.keyword) and node.arg == "parallel":
            yield node.value.lineno, "compiles with parallel="


def files_through_the_seam(source: Source) -> Iterator[Finding]:
    """Only engine/fs/local.py reaches a disk, so that a store can run, and crash, in memory."""
    if source.path.startswith("engine/"):
        system = ("os", "io", "mmap", "fcntl", "shutil", "tempfile", "pathlib", "glob")
        yield from imports_of(source, *system, "subprocess", "socket")
        yield from ((line, "opens a file") for line, name in calls(source) if name == "open")


def time_through_the_seam(source: Source) -> Iterator[Finding]:
    """Only engine/mvcc/clock.py reads a clock, so that a test can own the time."""
    if source.path.startswith("engine/"):
        yield from imports_of(source, "time")
        clocks = re.compile(r"(^|\.)(datetime|dt|date)\.(now|utcnow|today)$")
        yield from ((line, f"calls {name}") for line, name in calls(source) if clocks.search(name))


def threads_through_the_seam(source: Source) -> Iterator[Finding]:
    """Locks, waits and threads come from engine/threads.py alone, so that a test can hand out the turns by a seed."""
    if source.path.startswith("engine/"):
        yield from imports_of(source, "threading", "queue", "sched")
        types = {f"concurrent.futures.{name}" for name in ("CancelledError", "Executor", "Future")}
        for line, name in imported(source):
            if name.startswith("concurrent.futures.") and name not in types:
                yield line, f"imports {name}"


def no_hidden_threads(source: Source) -> Iterator[Finding]:
    """Only the WAL writer and the maintenance manager start threads; others are lent a pool."""
    if source.path.startswith("engine/"):
        yield from imports_of(source, "multiprocessing", "asyncio", "_thread")
        makers = {"Thread", "Timer", "ThreadPoolExecutor", "ProcessPoolExecutor"}
        for line, name in calls(source):
            if name.rpartition(".")[2] in makers:
                yield line, f"starts threads with {name}"


def chance_through_the_seam(source: Source) -> Iterator[Finding]:
    """What is random is passed in, so that a seed repeats a run."""
    if source.path.startswith("engine/"):
        yield from imports_of(source, "random", "secrets", "numpy.random")
        for line, name in calls(source):
            if name.startswith(("np.random.", "numpy.random.", "uuid.uuid")):
                yield line, f"calls {name}"


def compiled_only_in_kernels(source: Source) -> Iterator[Finding]:
    """The compile cache is keyed by the kernels folders: code elsewhere would be served stale."""
    if "/kernels/" not in source.path:
        makers = "nyala.engine.kernels.ahead.kernel", "nyala.engine.kernels.ahead.families"
        yield from imports_of(source, "numba", "llvmlite", *makers)


EVERYWHERE: list[Rule] = [file_length, function_length, ascii_only]
IN_PRODUCT: list[Rule] = [
    module_docstring,
    no_unfinished,
    no_pickle,
    no_print,
    no_parallel_kernels,
    files_through_the_seam,
    time_through_the_seam,
    threads_through_the_seam,
    no_hidden_threads,
    chance_through_the_seam,
    compiled_only_in_kernels,
]

# rule -> {file, or folder with a closing slash: why it may}
EXCEPTIONS: dict[Rule, dict[str, str]] = {
    files_through_the_seam: {
        "engine/fs/local.py": "it is the way to the disk",
        "engine/kernels/ahead/": "machine code is kept outside the store, in a library or the compiler's cache",
        "engine/kernels/compile/": "libraries of kernels are made outside the store",
        "engine/fs/encryption/key_source.py": "runs the command that prints a key",
        "engine/fs/private_file.py": "reads a key, which is never beside the store",
        "engine/fs/encryption/opening.py": "is told by a Path where a store lies, and hands it on",
        "engine/bucket/obstore.py": "asks which process it is in: threads do not survive a fork",
        "engine/wal/slots/slot_sink.py": "asks which process it is in: a forked child is not the holder",
        "engine/replica/read_only_store.py": "asks which process it is in: threads do not survive a fork",
        "engine/fs/store_lock.py": "is told by a Path where a store lies, and hands it on",
        "engine/store.py": "is told by a Path where a store lies, and hands it on",
        "engine/recovery/dump.py": "is told by a Path which file to show, and hands it on",
        "engine/options.py": "counts the cores, for the size of a pool",
        "engine/vectors/memory/huge_pages.py": "maps memory, and never a file",
    },
    time_through_the_seam: {
        "engine/mvcc/clock.py": "it is the clock",
        "engine/threads.py": "the pauses of threads are theirs; the engine's clock may stand still meanwhile",
    },
    threads_through_the_seam: {
        "engine/threads.py": "it is the seam",
    },
    no_hidden_threads: {
        "engine/wal/writer.py": "one thread writes to the log what nobody waits for",
        "engine/wal/slots/upload.py": "one thread puts a large payload, while beats go on",
        "engine/wal/slots/beats.py": "one thread shows that an idle holder of a log lives",
        "engine/bucket/at_once.py": "its threads wait for an object store, and end with the call",
        "engine/home/ahead.py": "one thread reads ahead for a process that stands by, which must miss no slot",
        "engine/maintenance/manager.py": "one thread picks the next piece of upkeep",
        "engine/scan/read/pool.py": "its threads help whoever scans, and start nothing of their own",
        "engine/bucket/files/fetching.py": "its threads do nothing but wait for an object store",
        "engine/bucket/probe.py": "its threads race for a name, and end with the probe",
        "engine/fs/together.py": "its threads do nothing but sync, while a flush of many tablets writes on",
        "engine/store.py": "owns the pool that transactions are lent",
    },
    compiled_only_in_kernels: {
        "flight_server/native/machine_code.py": "a few instructions made anew by each process, never cached",
    },
    chance_through_the_seam: {
        "engine/fs/memory.py": "names the type of the seeded Random that a test passes in",
    },
}


def excused(rule: Rule, path: str) -> bool:
    places = EXCEPTIONS.get(rule, {})
    return any(path == place or (place[-1] == "/" and path.startswith(place)) for place in places)


def name_of(value: object) -> str:
    return getattr(value, "__name__", str(value))


def test_every_rule_holds() -> None:
    """All rules in one test: they share the parsed files, which take longer to read than to judge."""
    found = [
        f"{source.path}:{line}: {what} ({rule.__doc__})"
        for rule in EVERYWHERE + IN_PRODUCT
        for source in sources(EVERYTHING if rule in EVERYWHERE else PRODUCT)
        if not excused(rule, source.path)
        for line, what in rule(source)
    ]
    assert not found, "\n".join(found)


EXCUSES = [(rule, place) for rule, places in EXCEPTIONS.items() for place in places]


@pytest.mark.parametrize(("rule", "place"), EXCUSES, ids=name_of)
def test_exception_is_needed(rule: Rule, place: str) -> None:
    under = [source for source in sources(PRODUCT) if source.path.startswith(place)]
    assert any(True for source in under for _ in rule(source)), f"{place} no longer needs it"


PLANTED: list[tuple[Rule, str, str]] = [
    (file_length, "engine/x.py", "pass\n" * (FILE_LINES_MAX + 1)),
    (function_length, "engine/x.py", "def f():\n" + "    pass\n" * FUNCTION_LINES_MAX),
    (ascii_only, "engine/x.py", "name = '\u00e9'\n"),
    (module_docstring, "engine/x.py", "name = 1\n"),
    (no_unfinished, "engine/x.py", "# TO" + "DO: later\n"),
    (no_pickle, "clients/x.py", "from pickle import loads\n"),
    (no_pickle, "clients/x.py", "np.load(f, allow_pickle=True)\n"),
    (no_print, "engine/x.py", "print('here')\n"),
    (no_parallel_kernels, "engine/kernels/x.py", "for i in numba.prange(3): pass\n"),
    (no_parallel_kernels, "engine/kernels/x.py", "numba.njit(parallel=True)\n"),
    (files_through_the_seam, "engine/wal/x.py", "import os.path\n"),
    (files_through_the_seam, "engine/wal/x.py", "open('f')\n"),
    (time_through_the_seam, "engine/wal/x.py", "from time import monotonic\n"),
    (time_through_the_seam, "engine/wal/x.py", "datetime.datetime.now()\n"),
    (threads_through_the_seam, "engine/wal/x.py", "from threading import Lock\n"),
    (threads_through_the_seam, "engine/wal/x.py", "from concurrent.futures import Future, ThreadPoolExecutor\n"),
    (no_hidden_threads, "engine/table/table.py", "threading.Thread(target=f).start()\n"),
    (chance_through_the_seam, "engine/x.py", "import random\n"),
    (chance_through_the_seam, "engine/x.py", "np.random.default_rng()\n"),
    (chance_through_the_seam, "engine/x.py", "uuid.uuid4()\n"),
    (compiled_only_in_kernels, "engine/wal/x.py", "from ..kernels.ahead.kernel import kernel\n"),
    (compiled_only_in_kernels, "engine/wal/x.py", "from ..kernels.ahead.families import family\n"),
    (compiled_only_in_kernels, "clients/x.py", "import numba\n"),
]


@pytest.mark.parametrize(("rule", "path", "text"), PLANTED, ids=name_of)
def test_rule_sees_a_planted_violation(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text)))


@pytest.mark.parametrize("rule", EVERYWHERE + IN_PRODUCT, ids=name_of)
def test_every_rule_has_a_planted_violation(rule: Rule) -> None:
    assert any(planted[0] is rule for planted in PLANTED)


# --- rules over the whole tree ---


def named_in(source: Source) -> Iterator[str]:
    """Yield the modules that a file imports, or names in a string (as a lazy import does)."""
    yield from (name for _, name in imported(source))
    for node in source.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\bnyala(?:\.\w+)+", node.value) if len(node.value) < 200 else ()


def dead_modules(tree: list[Source]) -> list[str]:
    """Return the modules that no other names; a package lives by what is in it."""
    named = {name for source in tree for name in set(named_in(source)) - {source.module}}
    modules = [source.module for source in tree if not source.is_package]
    return [module for module in modules if module not in named | ENTRY_POINTS]


def test_no_module_is_dead() -> None:
    assert dead_modules(sources(PRODUCT)) == []


def test_a_dead_module_is_seen() -> None:
    tree = [
        Source("engine/a.py", "from .codecs import plain\n"),
        Source("engine/codecs/plain.py", ""),
        Source("engine/codecs/lost.py", "from . import lost\n"),
        Source("nyala/__main__.py", "import_module('nyala.engine.a')\n"),
    ]
    assert dead_modules(tree) == ["nyala.engine.codecs.lost"]


def repeated_classes(tree: list[Source]) -> list[str]:
    """Return the classes whose name another class of the same part has, with the files of both."""
    places: dict[tuple[str, str], list[str]] = {}
    for source in tree:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                places.setdefault((source.path.split("/")[0], node.name), []).append(source.path)
    return [f"{part}: {name} in {' and '.join(found)}" for (part, name), found in places.items() if len(found) > 1]


def test_no_two_classes_of_a_part_share_a_name() -> None:
    assert repeated_classes(sources(PRODUCT)) == []


def test_two_classes_of_one_name_are_seen() -> None:
    tree = [
        Source("engine/scan/read/runs.py", "class Run: ...\n"),
        Source("engine/wal/log.py", "def f():\n    class Run: ...\n"),
        Source("clients/cli/run.py", "class Run: ...\n"),
    ]
    assert repeated_classes(tree) == ["engine: Run in engine/scan/read/runs.py and engine/wal/log.py"]


MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home|Users)/\w")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".sh", ".json", ".txt", ".yaml", ""}


def project_files() -> list[Path]:
    """Every text file of the project, without what is generated or hidden (but with .ci)."""
    tops = [*EVERYTHING, "docs", ".ci"]
    inside = [file for top in tops for file in (ROOT / top).rglob("*") if file.is_file()]
    at_the_top = [file for file in ROOT.iterdir() if file.is_file() and file.name != ".git"]  # a file in a work tree
    kept = [file for file in inside + at_the_top if "__pycache__" not in file.parts]
    return sorted(file for file in kept if file.suffix in TEXT_SUFFIXES)


def test_no_path_of_a_machine() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for file in project_files()
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert found == []
    assert MACHINE_PATH.search("open('/ho" + "me/me/nyala')")
