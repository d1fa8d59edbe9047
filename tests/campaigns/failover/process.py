"""The real ``nyala serve``, with a bucket that can be cut off and stops at named points, and a clock that is wrong.

python tests/campaigns/failover/process.py '{"control": "...", "shift_seconds": 3600, "planted": "", \
    "chunk_bytes": 0}' --data URL --name a ...
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import typer

from nyala.clients.cli.run import run
from nyala.engine.bucket import Bucket, PatientBucket
from nyala.engine.bucket.opening import bucket_of
from nyala.engine.home import opening
from nyala.engine.home.bucket import BucketHome
from nyala.engine.home.home import HeldHome, Opening
from nyala.engine.mvcc.clock import SystemClock
from nyala.engine.wal.slots import pace
from nyala.flight_server.commands.serve_command import serve
from nyala.schemas.errors import UnavailableError
from tests.campaigns.failover.member import STANDS_BY
from tests.campaigns.failover.move_points import with_move_points
from tests.campaigns.failover.planted import plant
from tests.campaigns.failover.points import PointedObjects


def _with_points(control: Path) -> None:
    def pointed(url: str) -> Bucket:
        bucket = bucket_of(url)
        assert isinstance(bucket, PatientBucket)
        bucket.objects = PointedObjects(bucket.objects, control)
        return bucket

    opening.bucket_of = pointed


def _with_clock(shift_seconds: int) -> None:
    def physical_microseconds(self: SystemClock) -> int:
        return time.time_ns() // 1000 + shift_seconds * 1_000_000

    SystemClock.physical_microseconds = physical_microseconds


def _with_chunks(size: int) -> None:
    if size:
        pace.BYTES_MIN = pace.BYTES_MAX = size


def _with_patience() -> None:
    """Wait for a store that another process has, however long it has it."""
    take = BucketHome.take

    def patiently(self: BucketHome, opening: Opening) -> HeldHome:
        while True:
            try:
                return take(self, opening)
            except UnavailableError:
                time.sleep(0.05)

    BucketHome.take = patiently


def main() -> None:
    given = json.loads(sys.argv.pop(1))
    _with_points(Path(given["control"]))
    _with_clock(given["shift_seconds"])
    _with_chunks(given["chunk_bytes"])
    if not STANDS_BY:
        _with_patience()
    plant(given["planted"])
    with_move_points(Path(given["control"]))
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(serve)
    run(app)


if __name__ == "__main__":
    main()
