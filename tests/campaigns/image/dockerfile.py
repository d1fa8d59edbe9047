"""What the Dockerfile says: its instructions, and which files of the checkout its COPY may see."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Instruction:
    """One instruction, its lines put together: the word in capitals, and what follows it."""

    word: str
    text: str

    def options(self) -> dict[str, str]:
        """The options before the arguments, such as ``from`` of ``COPY --from=build``."""
        return dict(re.findall(r"--([a-z-]+)=(\S+)", self.text.partition("CMD")[0]))

    def arguments(self) -> list[str]:
        """The words after the options; those of a JSON list, if it is one."""
        rest = re.sub(r"^(--\S+\s+)+", "", self.text)
        return json.loads(rest) if rest.startswith("[") else rest.split()


def instructions(file: Path = ROOT / "Dockerfile") -> list[Instruction]:
    """Return the instructions of a Dockerfile."""
    lines = [line for line in file.read_text().splitlines() if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [Instruction(*line.split(maxsplit=1)) for line in whole.splitlines() if line.strip()]


def stages() -> list[list[Instruction]]:
    """Return the instructions by stage; each begins with its FROM."""
    found: list[list[Instruction]] = []
    for each in instructions():
        if each.word == "FROM":
            found.append([])
        found[-1].append(each)
    return found


class Context:
    """The files of the checkout that are sent to a build: those that ``.dockerignore`` does not keep back."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        rules = [line.strip() for line in (root / ".dockerignore").read_text().splitlines()]
        self._rules = [(_pattern(rule.lstrip("!")), rule.startswith("!")) for rule in rules if rule and rule[0] != "#"]

    def sends(self, path: Path) -> bool:
        """Whether the file at ``path``, from the root, is sent: the last rule for it, or a folder above it, decides."""
        names = [path.as_posix(), *(parent.as_posix() for parent in path.parents)]
        for pattern, is_sent in reversed(self._rules):
            if any(pattern.fullmatch(name) for name in names):
                return is_sent
        return True

    def files(self, source: str) -> list[Path]:
        """Return the files, from the root, that a source of COPY names: a file, or all in a folder."""
        place = self.root / source
        found = sorted(place.rglob("*")) if place.is_dir() else [place]
        paths = [path.relative_to(self.root) for path in found if path.is_file()]
        return [path for path in paths if self.sends(path)]


def _pattern(rule: str) -> re.Pattern[str]:
    """Return the expression of a rule: ``**/`` is any folders, ``*`` any part of a name."""
    words = {"**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*|\?)", rule.strip("/"))
    return re.compile("".join(words.get(part, re.escape(part)) for part in parts))
