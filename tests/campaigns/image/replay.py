"""The image and its services without a container engine: the Dockerfile is replayed, and docker-compose.yml followed.

    sudo .venv/bin/python tests/campaigns/image/replay.py --work /var/tmp/nyala-replay

As root, on Debian. The base image is played by a Debian of debootstrap with Python from the same release. All steps of
the Dockerfile run in a chroot, with layers that are kept for the next run. Then the services run in namespaces, with a
read-only root and without capabilities (container.py says what is missing): a start without credentials says what to
mount; the service ``credentials`` makes them; the server runs as its own user and passes its health check; a client
writes and reads over TLS with a token; Prometheus's token reads the metrics once it is granted; SIGTERM ends the server
with exit code 0; and after another start the rows are there. Exit code 1, with the reason, if one of these fails.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[3]))  # to run as a script

from tests.campaigns.image.container import Container, Volumes
from tests.campaigns.image.dockerfile import ROOT, stages
from tests.campaigns.image.layers import Builder, Image, ReplayError

URL = "grpc+tls://nyala:8815"
ROWS = """
import nyala, pyarrow as pa
db = nyala.connect("grpc+tls://nyala:8815", token=open("/etc/nyala/root.token").read().strip(),
                   tls_roots="/etc/nyala/server.crt")
"""
WRITE = """
table = db.create_table("homes", pa.schema([("id", pa.int64()), ("city", pa.string())]), primary_key=["id"])
table.insert(pa.table({"id": [1, 2], "city": ["Nairobi", "Mombasa"]}))
"""
READ = """
print(db.table("homes").get({"id": 2})["city"], db.table("homes").scan().count())
"""
METRICS = """
import ssl, urllib.request as u
token = open("/run/nyala/prometheus.token").read().strip()
request = u.Request("https://nyala:8816/metrics", headers={"Authorization": f"Bearer {token}"})
print(u.urlopen(request, context=ssl.create_default_context(cafile="/run/nyala/server.crt")).read().decode())
"""
KERNELS = "from nyala.engine.kernels.ahead.library import INSTALLED, library; print(library().level, INSTALLED)"


def make_base(folder: Path) -> Path:
    """Return the folder that plays the base image: made by debootstrap unless it is there."""
    (base,) = {steps[0].text.split()[0] for steps in stages()}
    version, release = base.partition("@")[0].removeprefix("python:").split("-slim-")
    if not folder.exists():
        new = folder.with_name(f"{folder.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        packages = "--include=python3,python3-venv,ca-certificates,openssl"
        subprocess.run(["debootstrap", "--variant=minbase", packages, release, str(new)], check=True)
        (new / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        (new / "etc/hosts").touch()
        new.rename(folder)
    told = ["chroot", str(folder), "python", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    have = subprocess.run(told, capture_output=True, text=True, check=True).stdout.strip()
    assert have == version, f"the base has Python {have}, the Dockerfile {version}: give another --work"
    return folder


class Replay:
    """The services of docker-compose.yml, on one image."""

    def __init__(self, image: Image, work: Path) -> None:
        self._image = image
        self._work = work
        self._services: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
        shutil.rmtree(work / "volumes", ignore_errors=True)
        self._volumes = Volumes(work / "volumes")

    def container(self, name: str, **changes: Any) -> Container:
        service = {**self._services[name], **changes}
        return Container(self._image, service, self._volumes, self._work / "rooms" / name)

    def run(self) -> None:
        self.without_credentials()
        self.credentials()
        server = self.serving()
        try:
            self.closed(server)
            self.rows(server)
            self.metrics(server)
            self.stopped(server)
            server = self.serving()
            assert self.python(server, ROWS + READ) == "Mombasa 2", "rows are gone after a restart"
            self.stopped(server)
        finally:
            server.stop(9)
            say("", server.log())

    def without_credentials(self) -> None:
        volumes = [each for each in self._services["nyala"]["volumes"] if "/etc/nyala" not in each]
        server = self.container("nyala", volumes=volumes).start()
        assert server.wait(60) != 0, "the server started without credentials"
        assert "/etc/nyala/server.crt" in server.log() and "mount" in server.log(), server.log()
        say("without credentials", server.log().strip())

    def credentials(self) -> None:
        made: list[list[bytes]] = []
        for _ in range(2):
            service = self.container("credentials").start()
            assert service.wait(60) == 0, service.log()
            folders = [self._work / "volumes" / name for name in ("credentials", "monitoring")]
            made.append([file.read_bytes() for folder in folders for file in sorted(folder.iterdir())])
        assert made[0] == made[1], "the second run of the credentials changed some"
        say("credentials", f"{len(made[0])} files, the same after a second run")

    def serving(self) -> Container:
        began = time.monotonic()
        server = self.container("nyala").start()
        line = server.line()
        assert line.startswith("listening on grpc+tls://0.0.0.0:8815 and https://0.0.0.0:8816"), server.log()
        say("started", f"after {time.monotonic() - began:.1f} s: {line}")
        check = self._image.said["HEALTHCHECK"].text.partition("CMD ")[2]
        server.run(json.loads(check))
        say("healthy", "the HEALTHCHECK passes")
        return server

    def closed(self, server: Container) -> None:
        status = server.status()
        assert set(status["Uid"].split()) == {"10001"} and set(status["Gid"].split()) == {"10001"}, status
        assert int(status["CapPrm"], 16) == int(status["CapBnd"], 16) == 0 and status["NoNewPrivs"] == "1", status
        for place in ("/new", "/opt/nyala/new", "/etc/nyala/new", "/var/new"):
            refused = server.run(["touch", place], check=False)
            assert refused.returncode and "Read-only file system" in refused.stderr, f"{place}: {refused.stderr}"
        server.run(["touch", "/tmp/new"])
        say("closed", "uid 10001, no capabilities, no new privileges, a read-only root")
        say("kernels", self.python(server, KERNELS))

    def rows(self, server: Container) -> None:
        refused = server.run(["nyala", "--tls-roots", "/etc/nyala/server.crt", "list", "--url", URL], check=False)
        assert refused.returncode and "UNAUTHENTICATED" in refused.stderr, refused.stderr
        self.python(server, ROWS + WRITE)
        words = ["--token-file", "/etc/nyala/root.token", "--tls-roots", "/etc/nyala/server.crt", "list", "--url", URL]
        assert server.run(["nyala", *words]).stdout.strip() == "homes"
        read = self.python(server, ROWS + READ)
        assert read == "Mombasa 2", read
        say("rows", "refused without a token; written and read over TLS with one")

    def metrics(self, server: Container) -> None:
        """As Prometheus reads them: from a container that has its volume, before and after it is granted."""
        scrape = {"entrypoint": ["python", "-c", METRICS], "command": [], "volumes": ["monitoring:/run/nyala:ro"]}
        before = self.container("prometheus", **scrape).start(server)
        assert before.wait(60) != 0 and "403" in before.log(), before.log()
        for _ in range(2):
            grants = self.container("grants").start(server)
            assert grants.wait(60) == 0, grants.log()
        after = self.container("prometheus", **scrape).start(server)
        assert after.line().startswith("#") and after.wait(60) == 0, after.log()
        say("metrics", "denied before the service grants, read after it")

    def stopped(self, server: Container) -> None:
        began = time.monotonic()
        (number,) = self._image.words("STOPSIGNAL")
        server.stop(signal.Signals[number])
        code = server.wait(float(self._services["nyala"]["stop_grace_period"].removesuffix("s")))
        assert code == 0 and "stopped" in server.log(), (code, server.log())
        say("stopped", f"by {number} after {time.monotonic() - began:.1f} s, exit code 0")

    @staticmethod
    def python(server: Container, code: str) -> str:
        return server.run(["python", "-c", code]).stdout.strip()


def say(what: str, text: str) -> None:
    sys.stdout.write(f"{what:>20}  {text}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("/var/tmp/nyala-replay"), help="base, layers and volumes")
    work = parser.parse_args().work.absolute()
    if os.geteuid() != 0:
        sys.exit("the replay mounts and changes its user: run it as root")
    work.mkdir(parents=True, exist_ok=True)
    try:
        Replay(Builder(make_base(work / "base"), work).build(), work).run()
    except (AssertionError, ReplayError, subprocess.SubprocessError) as error:
        sys.exit(f"FAILED: {error}")


if __name__ == "__main__":
    main()
