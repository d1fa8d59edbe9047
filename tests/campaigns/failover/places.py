"""Where the store of a campaign lives, and each server's own way there, which can be cut."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from nyala.engine.bucket import Bucket, bucket_of
from tests.campaigns.failover.points import CUT
from tests.doubles.cut_proxy import CutProxy
from tests.doubles.lying_proxy import LyingProxy, Odds
from tests.doubles.s3_server import BUCKET, KEYS, url_of

ODDS = Odds(error_before=0.01, slow=0.01, answer_lost=0.01, error_after=0.01, doubled=0.01, late=0.01, conflict=0.01)
LATE_SECONDS = 4.0
_GATEWAYS = ("http://127.0.0.1:18000", "http://127.0.0.1:18001")
"""As ceph/cluster.sh has them."""


@dataclass
class Way:
    """One server's way to the bucket. ``proxies`` are cut with it, and what follows ``control`` inside the server."""

    url: str
    control: Path
    proxies: list[CutProxy] = field(default_factory=list)

    def cut(self) -> None:
        """Let neither requests nor answers through."""
        for proxy in self.proxies:
            proxy.cut()
        if not self.proxies:
            (self.control / CUT).touch()

    def mend(self) -> None:
        """Let all through again; over a network, what was on its way arrives now."""
        for proxy in self.proxies:
            proxy.mend()
        (self.control / CUT).unlink(missing_ok=True)


class Place(Protocol):
    """A place for stores, one after the other."""

    @property
    def url(self) -> str:
        """Its URL for who checks it: nothing lies on that way."""
        ...

    def way(self, root: str, control: Path, seed: int) -> Way:
        """Return a new way to the store at ``root``."""
        ...


@dataclass
class DirectoryPlace:
    """A directory that plays a bucket."""

    folder: Path

    @property
    def url(self) -> str:
        return f"file://{self.folder}"

    def way(self, root: str, control: Path, seed: int) -> Way:
        return Way(f"{self.url}/{root}", control)


@dataclass
class GatewayPlace:
    """A bucket behind gateways that speak the protocol of S3; servers reach it by a network that lies."""

    addresses: Sequence[str]
    stack: ExitStack
    odds: Odds = ODDS

    @property
    def url(self) -> str:
        return url_of(self.addresses[0], "{root}")

    def way(self, root: str, control: Path, seed: int) -> Way:
        liar = self.stack.enter_context(LyingProxy(self.addresses, seed, self.odds, LATE_SECONDS))
        port = urlsplit(liar.address).port
        assert port, "a proxy has a port"
        proxy = self.stack.enter_context(CutProxy(port))
        return Way(url_of(f"http://127.0.0.1:{proxy.here}", root), control, [proxy])


@dataclass
class CephPlace(GatewayPlace):
    """Two gateways of one Ceph, whose only OSD can be killed."""

    folder: Path = Path()

    def fail(self, seconds: float) -> None:
        """Kill -9 the OSD, and start it again after a while: nothing answers meanwhile."""
        run_ceph("kill-osd", self.folder)
        time.sleep(seconds)
        run_ceph("start-osd", self.folder)


def url_at(place: Place, root: str) -> str:
    """Return the URL of a store for who checks it."""
    return place.url.format(root=root) if "{root}" in place.url else f"{place.url}/{root}"


def bucket_at(place: Place, root: str) -> Bucket:
    """Return the bucket of a store for who checks it."""
    return bucket_of(url_at(place, root))


@contextmanager
def directory(folder: Path) -> Iterator[Place]:
    """A directory as the bucket."""
    yield DirectoryPlace(folder)


@contextmanager
def moto() -> Iterator[Place]:
    """A server that plays S3 in a process of its own, and a network that lies."""
    program = Path(__file__).parents[2] / "doubles/s3_server.py"
    process = subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        with ExitStack() as stack:
            yield GatewayPlace([address], stack)
    finally:
        process.kill()
        process.wait()


@contextmanager
def ceph(folder: Path) -> Iterator[Place]:
    """A Ceph with two gateways, set up in ``folder`` out of Debian's packages, and a network that lies."""
    run_ceph("up", folder)
    try:
        _make_bucket(_GATEWAYS[0])
        with ExitStack() as stack:
            yield CephPlace(_GATEWAYS, stack, folder=folder)
    finally:
        run_ceph("down", folder)


def _make_bucket(address: str) -> None:
    import boto3  # moto, which plays S3 elsewhere, brings it

    secrets = {"aws_access_key_id": KEYS["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": KEYS["AWS_SECRET_ACCESS_KEY"]}
    boto3.client("s3", endpoint_url=address, region_name="us-east-1", **secrets).create_bucket(Bucket=BUCKET)


def run_ceph(what: str, folder: Path) -> None:
    """Run a command of ``ceph/cluster.sh``."""
    program = Path(__file__).parent / "ceph/cluster.sh"
    subprocess.run([program, what, folder], check=True, env={**os.environ, **KEYS})


PLACES: dict[str, Callable[[Path], AbstractContextManager[Place]]] = {
    "directory": directory,
    "moto": lambda folder: moto(),
    "ceph": ceph,
}
ENVIRONMENT = KEYS
