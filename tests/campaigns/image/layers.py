"""Replays a Dockerfile without a container engine: each instruction adds a layer to a folder of layers, which overlayfs
puts together, and runs in a chroot. Needs root, on Linux.

A layer is kept under a digest of all that went into it, and made once. The base image is a folder that the caller has.
"""

from __future__ import annotations

import ast
import hashlib
import os
import shlex
import shutil
import string
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaigns.image.dockerfile import Context, Instruction, stages

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SAID = {"USER", "WORKDIR", "STOPSIGNAL", "EXPOSE", "VOLUME", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
"""Instructions that say something about the image, and change no file."""


class ReplayError(Exception):
    """A step of the Dockerfile failed; what it said stands above."""


@dataclass
class Image:
    """Layers, the lowest first, and what the instructions have said."""

    layers: list[Path]
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": _PATH})
    said: dict[str, Instruction] = field(default_factory=dict)

    @property
    def lower(self) -> str:
        """The layers as overlayfs takes them."""
        return ":".join(str(layer) for layer in reversed(self.layers))

    def words(self, word: str) -> list[str]:
        """The arguments of an instruction; none if it is not there."""
        return self.said[word].arguments() if word in self.said else []

    @property
    def user(self) -> str:
        return self.words("USER")[0] if "USER" in self.said else "0:0"

    @property
    def workdir(self) -> str:
        return self.words("WORKDIR")[0] if "WORKDIR" in self.said else "/"


class Builder:
    """Makes the image of the last stage."""

    def __init__(self, base: Path, work: Path) -> None:
        self._base = base
        self._layers = work / "layers"
        self._scratch = work / "scratch"
        self._context = Context()
        self._stages: dict[str, Image] = {}

    def build(self) -> Image:
        """Replay all stages. Raises ReplayError if a step fails."""
        image = Image([self._base])
        for number, steps in enumerate(stages()):
            image = Image([self._base])
            name = steps[0].text.partition(" AS ")[2]
            for step in steps[1:]:
                self._replay(image, step)
            self._stages[name or str(number)] = image
        return image

    def _replay(self, image: Image, step: Instruction) -> None:
        if step.word in ("RUN", "COPY", "WORKDIR"):
            image.layers.append(self._layer(image, step))
        if step.word == "ENV":
            for word in shlex.split(step.text):
                name, _, value = word.partition("=")
                image.environment[name] = string.Template(value).substitute(image.environment)
        elif step.word in _SAID:
            image.said[step.word] = step
        elif step.word not in ("RUN", "COPY"):
            raise NotImplementedError(f"the replay knows no {step.word}")

    def _layer(self, image: Image, step: Instruction) -> Path:
        layer = self._layers / self._digest(image, step)
        state = "kept" if layer.exists() else "made"
        sys.stdout.write(f"{state} {layer.name} {step.word} {step.text[:90]}\n")
        sys.stdout.flush()
        if not layer.exists():
            shutil.rmtree(self._scratch, ignore_errors=True)
            upper = self._scratch / "upper"
            for name in ("upper", "work", "merged", "other"):
                (self._scratch / name).mkdir(parents=True)
            if step.word == "WORKDIR":
                (upper / step.text.strip("/")).mkdir(parents=True, exist_ok=True)
            else:
                try:
                    (self._run if step.word == "RUN" else self._copy)(image, step, upper)
                except subprocess.CalledProcessError as error:
                    raise ReplayError(f"{step.word} {step.text} ended with {error.returncode}") from None
            self._layers.mkdir(exist_ok=True)
            upper.rename(layer)
        return layer

    def _digest(self, image: Image, step: Instruction) -> str:
        said = f"{image.lower}\0{sorted(image.environment.items())}\0{image.user}\0{image.workdir}\0{step}"
        digest = hashlib.sha256(said.encode())
        if step.word == "COPY" and (other := step.options().get("from")):
            digest.update(self._stages[other].lower.encode())
        elif step.word == "COPY":
            for path in self._copied(step):
                digest.update(f"\0{path}\0".encode() + (self._context.root / path).read_bytes())
        return digest.hexdigest()[:12]

    def _copied(self, step: Instruction) -> list[Path]:
        return [path for source in step.arguments()[:-1] for path in self._context.files(source)]

    def _copy(self, image: Image, step: Instruction, upper: Path) -> None:
        *sources, target = step.arguments()
        place = upper / str(Path(image.workdir, target)).strip("/")
        if other := step.options().get("from"):
            (source,) = sources
            place.parent.mkdir(parents=True)
            mount = f"mount -t overlay overlay -o ro,lowerdir={self._stages[other].lower} {self._scratch}/other"
            _in_own_mounts(f"{mount}\ncp -a {self._scratch}/other{source} {place}")
            return
        for source in sources:
            for path in self._context.files(source):
                inside = path.relative_to(source) if path.as_posix() != source else Path(path.name)
                (place / inside).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self._context.root / path, place / inside)

    def _run(self, image: Image, step: Instruction, upper: Path) -> None:
        scratch = self._scratch
        environment, certificate = pip_settings()
        words = [f"{name}={value}" for name, value in (environment | image.environment).items()]
        command = ["chroot", f"--userspec={image.user}", f"{scratch}/merged", "env", "-i", *words]
        inside = f"cd {image.workdir} && {step.text}"
        _in_own_mounts(
            f"""
            mount -t overlay overlay -o lowerdir={image.lower},upperdir={upper},workdir={scratch}/work {scratch}/merged
            mount -t proc proc {scratch}/merged/proc
            mount -t tmpfs tmpfs {scratch}/merged/mnt
            {f"cp {certificate} {scratch}/merged/mnt/certificates.pem" if certificate else ""}
            {shlex.join([*command, "sh", "-c", inside])}
            """
        )


def pip_settings() -> tuple[dict[str, str], str | None]:
    """Return how pip of this machine reaches its index, as an environment for a chroot, and the file of authorities
    for it, which is to lie there at ``/mnt/certificates.pem``."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    pairs = [line.partition("=")[::2] for line in listed.stdout.splitlines()]
    values: dict[str, Any] = {key.rpartition(".")[2]: ast.literal_eval(value) for key, value in pairs}
    certificate = values.get("cert")
    if certificate:
        values["cert"] = "/mnt/certificates.pem"
    settings = {f"PIP_{name.upper().replace('-', '_')}": " ".join(str(value).split()) for name, value in values.items()}
    proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    return settings | proxies, certificate


def _in_own_mounts(script: str) -> None:
    """Run a script whose mounts end with it."""
    subprocess.run(["unshare", "--mount", "--fork", "--kill-child", "sh", "-eu", "-c", script], check=True)
