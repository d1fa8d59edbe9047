"""The container image, as far as it can be checked without building it: what it copies, pins, and starts. The whole is
replayed by ``make image``."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import nyala
from nyala.flight_server.security.token_file import create_token
from tests.campaigns.image.dockerfile import ROOT, Context, Instruction, instructions, stages
from tests.doubles.certificates import Authority

LAST = {step.word: step for step in stages()[-1]}
CHECK: list[str] = json.loads(LAST["HEALTHCHECK"].text.partition("CMD ")[2])


def test_the_command_of_the_image_serves_and_is_healthy(tmp_path: Path) -> None:
    """The very command and the very check, but for the places of files, and ports, which are any free ones here."""
    authority = Authority(tmp_path)
    pair = authority.server()
    secret, _ = create_token(tmp_path / "tokens.json", "root", ("admin",))
    own = {
        "/data": str(tmp_path / "data"),
        "grpc+tls://0.0.0.0:8815": "grpc+tls://0.0.0.0:0",
        "8816": "0",
        "/etc/nyala/server.crt": str(pair.certificate),
        "/etc/nyala/server.key": str(pair.key),
        "/etc/nyala/tokens.json": str(tmp_path / "tokens.json"),
    }
    command = [*LAST["ENTRYPOINT"].arguments(), *LAST["CMD"].arguments()]
    assert command[0] == "nyala" and own.keys() <= set(command) and "--insecure" not in command
    words = [sys.executable, "-m", "nyala", *(own.get(word, word) for word in command[1:])]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stderr is not None
        try:
            line = server.stdout.readline()
            found = re.fullmatch(r"listening on grpc\+tls://0\.0\.0\.0:(\d+) and https://0\.0\.0\.0:(\d+)\n", line)
            assert found, line + server.stderr.read()
            with nyala.connect(f"grpc+tls://localhost:{found[1]}", token=secret, tls_roots=authority.roots) as db:
                assert db.health().status == "ok"
            check = [sys.executable, *(word.replace("8816", found[2]) for word in CHECK[1:])]
            assert CHECK[0] == "python" and subprocess.run(check, timeout=120).returncode == 0
        finally:
            server.terminate()
        assert server.wait(120) == 0
    failed = subprocess.run(check, stderr=subprocess.DEVNULL, timeout=120)
    assert failed.returncode == 1  # Docker knows 0 and 1


@pytest.mark.parametrize("missing", ["server.crt", "server.key", "tokens.json"])
def test_a_start_without_a_file_says_which(missing: str, tmp_path: Path) -> None:
    pair = Authority(tmp_path).server()
    create_token(tmp_path / "tokens.json", "root", ("admin",))
    files = {"server.crt": pair.certificate, "server.key": pair.key, "tokens.json": tmp_path / "tokens.json"}
    files[missing] = tmp_path / "mounted" / missing
    own = {f"/etc/nyala/{name}": str(path) for name, path in files.items()} | {"/data": str(tmp_path / "data")}
    words = [sys.executable, "-m", "nyala", *(own.get(word, word) for word in LAST["CMD"].arguments())]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode and len(done.stderr.splitlines()) == 1
    assert str(files[missing]) in done.stderr and "mount it into the container" in done.stderr


def test_everything_that_is_installed_is_sent_and_nothing_else() -> None:
    copies = [step.arguments() for step in instructions() if step.word == "COPY" and "from" not in step.options()]
    sources = {source for *words, _ in copies for source in words}
    folders = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"].values()
    locks = {"deploy/requirements.txt", "deploy/requirements-build.txt"}
    assert {*folders, "pyproject.toml", "README.md", "LICENSE", *locks} == sources
    context = Context()
    assert all(context.files(source) for source in sources)
    kept_back = [".git/config", "deploy/lock.sh", "tests/conftest.py", "java/x.jar", "engine/x.pyc", "data/manifest"]
    kept_back += ["engine/fs/__pycache__/x.py", "engine/kernels/ahead/libraries/x86-64-v2.kernels"]
    assert [path for path in kept_back if context.sends(Path(path))] == []


def test_bases_are_pinned_by_digest_and_are_one() -> None:
    bases = {step.arguments()[0] for step in instructions() if step.word == "FROM"}
    assert len(bases) == 1 and len(stages()) == 2
    assert all(re.fullmatch(r"python:3\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", base) for base in bases)


def test_what_comes_from_an_index_has_hashes() -> None:
    """Each install either names a lock, or may ask no index."""
    installs = re.findall(r"pip (?:--python \S+ )?(?:install|wheel) (.*?)(?= && |$)", _runs())
    assert len(installs) == 4
    locked = [words for words in installs if "--require-hashes" in words and "--only-binary :all:" in words]
    closed = [words for words in installs if "--no-index --no-deps" in words]
    assert [len(locked), len(closed)] == [2, 2]
    assert {words.split()[-1] for words in locked} == {"requirements.txt", "requirements-build.txt"}
    assert "curl" not in _runs() and "apt" not in _runs()


def test_the_server_is_nobody_and_owns_its_data_only() -> None:
    steps = stages()[-1]
    words = [step.word for step in steps]
    assert words.index("USER") > max(number for number, word in enumerate(words) if word in ("RUN", "COPY"))
    assert LAST["USER"].arguments() == ["10001:10001"]
    (volume,) = LAST["VOLUME"].arguments()
    assert re.findall(r"install -d -o 10001 -g 10001 -m 0700 (.*)", LAST["RUN"].text) == [volume]
    assert LAST["STOPSIGNAL"].arguments() == ["SIGTERM"]
    for word in ("ENTRYPOINT", "CMD"):
        assert LAST[word].text.startswith("["), "through a shell, SIGTERM would not reach the server"


def test_kernels_are_compiled_when_the_image_is_built() -> None:
    build = stages()[0]
    assert build[-1] == Instruction("RUN", "/opt/nyala/bin/python -m nyala.engine.kernels.compile.making")
    assert build[-2].word == "WORKDIR" and build[-2].text == "/", "from /src Python would import the sources"


def _runs() -> str:
    return " && ".join(step.text for step in instructions() if step.word == "RUN")
