"""Figures of the house: how many files lie outside a room, and how rooms and files import each other.

    python tests/house/figures.py            prints them
    python tests/house/figures.py --record   writes them to figures.json; test_figures.py fails when one rises

A *room* is a package below one of the four product folders; a file in such a folder itself is *loose*, and counts as a
room of its own. An *arrow* goes from one room to another of the same product folder if a file of the first imports one
of the second. A *circle* is a set of rooms, or of files, each of which reaches all others by arrows. Imports inside
functions count; those under ``TYPE_CHECKING`` are counted apart. In Java a room is a package, and a file a class.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cache
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("figures.json")
FOLDERS = ("flight_server", "schemas", "engine", "clients")
PRODUCT = ("nyala", "pyspark_nyala", *FOLDERS)
VERBS = {"found", "said", "told", "asked", "known", "wanted", "made", "done"}
"""Words that say what happened to a thing, not what it is: no names of variables."""
_DOOR = "package-info.java"
_JAVA_NO_CODE = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\])'""", re.DOTALL)
"""Comments and texts. One expression, since each may have the beginning of the other in it."""
Graph = Mapping[str, Set[str]]


def figures() -> dict[str, int]:
    """Return each figure by its name. Less of each is better."""
    modules = _modules()
    imports = {name: set(_imports(name, file, modules, type_only=False)) for name, file in modules.items()}
    types = {name: set(_imports(name, file, modules, type_only=True)) for name, file in modules.items()}
    counts: dict[str, int] = {}
    for folder in FOLDERS:
        inside = [file.relative_to(ROOT) for file in modules.values() if file.is_relative_to(ROOT / folder)]
        files = Counter(str(file.parent) for file in inside if file.name != "__init__.py")
        rooms = _rooms(folder, imports, modules)
        counts[f"{folder}: loose files"] = files[folder]
        counts[f"{folder}: files in the largest room"] = max(
            (count for room, count in files.items() if room != folder), default=0
        )
        counts[f"{folder}: circles of rooms"] = len(circles(rooms))
    whole = {name: imports[name] | types[name] for name in modules}
    counts["circles of files"] = len(circles(imports))
    counts["circles of files by types only"] = len(circles(whole)) - counts["circles of files"]
    counts["packages that say nothing at their door"] = sum(
        not ast.get_docstring(_tree(file)) for file in modules.values() if file.name == "__init__.py"
    )
    counts["variables that are verbs"] = sum(_verbs(file) for file in modules.values())
    java = java_graph((file.stem, file.read_text()) for file in _java())
    counts["java: files in the largest package"] = max(Counter(file.parent for file in _java()).values())
    counts["java: classes in the largest circle"] = max(map(len, circles(java)), default=0)
    counts["java: circles of packages"] = len(circles(packages_of(java)))
    counts["java: packages that say nothing at their door"] = _silent(_java())
    counts["top folders of tests"] = sum(
        each.is_dir() and each.name[0] not in "._" for each in (ROOT / "tests").iterdir()
    )
    return counts


def lines() -> int:
    """Return the lines of Python in the product."""
    return sum(len(file.read_text().splitlines()) for file in _modules().values())


def circles(graph: Graph) -> list[set[str]]:
    """Return the strongly connected parts with more than one node, by Tarjan's algorithm without recursion (R. Tarjan,
    Depth-first search and linear graph algorithms, 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    parts: list[set[str]] = []
    for start in graph:
        if start in order:
            continue
        work = [(start, iter(sorted(graph[start])))]
        order[start] = low[start] = len(order)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, neighbours = work[-1]
            following = next((each for each in neighbours if each not in order or each in on_stack), None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    part = set()
                    while node not in part:
                        part.add(stack.pop())
                    on_stack -= part
                    parts += [part] if len(part) > 1 else []
            elif following in on_stack:
                low[node] = min(low[node], order[following])
            else:
                order[following] = low[following] = len(order)
                stack.append(following)
                on_stack.add(following)
                work.append((following, iter(sorted(graph.get(following, ())))))
    return parts


def _modules() -> dict[str, Path]:
    """Return all files of the product by the names they are imported by."""
    files = sorted(file for folder in PRODUCT for file in (ROOT / folder).rglob("*.py"))
    return {_name(file): file for file in files}


def _name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] in ("nyala", "pyspark_nyala") else ("nyala", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def _imports(name: str, file: Path, modules: Mapping[str, Path], type_only: bool) -> Iterator[str]:
    """Yield the modules of the product that a file imports, either for type checkers alone, or when it runs."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in _nodes(_tree(file), type_only):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            members = [f"{base}.{alias.name}" for alias in node.names]
            targets = [member if member in modules else base for member in members]
        yield from (target for target in targets if target in modules and target != name)


def _nodes(tree: ast.AST, type_only: bool) -> Iterator[ast.AST]:
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, is_typing = waiting.pop()
        if is_typing == type_only:
            yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += [(each, True) for each in node.body] + [(each, is_typing) for each in node.orelse]
        else:
            waiting += [(each, is_typing) for each in ast.iter_child_nodes(node)]


def _rooms(folder: str, imports: Graph, modules: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return which rooms of a product folder import which."""
    hall = ROOT / folder
    arrows: dict[str, set[str]] = defaultdict(set)
    files = {name: file for name, file in modules.items() if file.is_relative_to(hall)}
    inside = {name: str(file if file.parent == hall else file.parent) for name, file in files.items()}
    for name, room in inside.items():
        arrows[room] |= {inside[each] for each in imports[name] if each in inside and inside[each] != room}
    return dict(arrows)


def _verbs(file: Path) -> int:
    names = (node for node in ast.walk(_tree(file)) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return sum(node.id in VERBS for node in names)


def _java() -> list[Path]:
    return sorted(file for file in (ROOT / "java").rglob("*.java") if file.name != _DOOR)


def _silent(files: Iterable[Path]) -> int:
    """Return how many folders of Java have no file with a word on their package."""
    return sum(not (folder / _DOOR).exists() for folder in {file.parent for file in files})


def java_graph(texts: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Return which classes use which, by their full names. ``texts`` has the name of each file and its text: classes of
    the same package stand there by their names alone, and others in imports."""
    codes = [(name, _JAVA_NO_CODE.sub("", text)) for name, text in texts]
    classes = {f"{_package(code)}.{name}": code for name, code in codes}
    graph: dict[str, set[str]] = {}
    for name, code in classes.items():
        imported = set(re.findall(r"^import (?:static )?((?:[a-z]\w*\.)+[A-Z]\w*)", code, re.MULTILINE))
        words = set(re.findall(r"\b[A-Z]\w*", code)) - {each.rpartition(".")[2] for each in imported}
        used = imported | {f"{_package(code)}.{word}" for word in words}
        graph[name] = used & classes.keys() - {name}
    return graph


def _package(code: str) -> str:
    return re.findall(r"^package ([\w.]+);", code, re.MULTILINE)[0]


def packages_of(classes: Graph) -> dict[str, set[str]]:
    """Return which packages use which."""
    arrows: dict[str, set[str]] = defaultdict(set)
    for name, used in classes.items():
        package = name.rpartition(".")[0]
        arrows[package] |= {each.rpartition(".")[0] for each in used} - {package}
    return dict(arrows)


def risen(now: Mapping[str, int], before: Mapping[str, int]) -> Iterable[str]:
    """Yield a sentence for each figure that is larger than the one that was recorded."""
    for name, count in now.items():
        if count > before.get(name, 0):
            yield f"{name}: {count}, and {before.get(name, 0)} is recorded"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the figures to figures.json")
    options = parser.parse_args()
    now, table = figures(), Table("figure", "now", "recorded")
    before = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name, count in now.items():
        table.add_row(name, f"{count:,}", f"{before.get(name, 0):,}")
    table.add_row("lines of Python in the product", f"{lines():,}", "")
    Console().print(table)
    if options.record:
        RECORD.write_text(json.dumps(now, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
