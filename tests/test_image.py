"""The container image, as far as it can be checked without a container engine: what it copies, pins and starts."""

import fnmatch
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pyarrow.flight as fl

ROOT = Path(__file__).parent.parent
DOCKERFILE = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text())
"""With its lines put together."""


def instructions(word: str) -> list[str]:
    return re.findall(rf"^{word} (.*)$", DOCKERFILE, re.MULTILINE)


def test_the_command_of_the_image_serves(tmp_path: Path) -> None:
    """The very command, but for the place of the data and the port, which is any free one here."""
    (command,) = map(json.loads, instructions("CMD"))
    own = {"/data": str(tmp_path / "data"), "grpc://0.0.0.0:8815": "grpc://0.0.0.0:0"}
    assert own.keys() <= set(command) and command[0] == "nyala"
    words = [sys.executable, "-m", "nyala", *(own.get(word, word) for word in command[1:])]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stderr is not None
        try:
            line = server.stdout.readline()
            assert line.startswith("listening on grpc://"), server.stderr.read()
            url = f"grpc://127.0.0.1:{line.rpartition(':')[2].strip()}"
            (answer,) = fl.connect(url).do_action("health")
            assert json.loads(answer.body.to_pybytes())["status"] == "ok"
            (check,) = [json.loads(each.partition(" CMD ")[2]) for each in instructions("HEALTHCHECK")]
            checked = [sys.executable, "-m", *check, "--url", url]
            assert subprocess.run(checked, stdout=subprocess.DEVNULL, timeout=120).returncode == 0
        finally:
            server.terminate()
        assert server.wait(60) == 0


def test_everything_that_is_installed_is_copied() -> None:
    copied = {word for line in instructions("COPY") if not line.startswith("--") for word in line.split()[:-1]}
    folders = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"].values()
    assert {*folders, "pyproject.toml", "README.md", "LICENSE"} == copied
    rules = (ROOT / ".dockerignore").read_text().split()
    for name in copied:
        assert (ROOT / name).exists()
        sent = [rule.startswith("!") for rule in rules if fnmatch.fnmatch(name, rule.lstrip("!"))]
        assert sent and sent[-1], f".dockerignore keeps {name} from the build"
    assert fnmatch.fnmatch(".git", rules[0]) and "!.git" not in rules


def test_bases_are_pinned_by_digest_and_are_one() -> None:
    bases = {line.split()[0] for line in instructions("FROM")}
    assert len(bases) == 1 and all(
        re.fullmatch(r"python:3\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", base) for base in bases
    )


def test_what_is_written_can_be_written_with_a_read_only_root() -> None:
    (volumes,) = map(json.loads, instructions("VOLUME"))
    (cache,) = re.findall(r"NYALA_CACHE_DIR=(\S+)", DOCKERFILE)
    assert volumes == ["/data", cache]
    made = next(line for line in instructions("RUN") if "install -d -o 10001" in line)
    assert all(volume in made.split() for volume in volumes)
    page = (ROOT / "docs" / "operations.md").read_text()
    (run,) = re.findall(r"^docker run (.*)$", page, re.MULTILINE)
    assert "--read-only" in run and all(f":{volume}" in run for volume in volumes)
    assert re.search(r"-p 127\.0\.0\.1:", run)
