"""Copies a store in a bucket to another bucket, or to another name, while it is in use."""

from __future__ import annotations

import tempfile
import uuid
from contextlib import suppress
from hashlib import blake2b

from ...engine.bucket.opening import bucket_of, bucket_of_both
from ...engine.checkpoint.bucket_copy import BucketCopy, SameService
from ...engine.fs.local import LocalFileSystem
from ...engine.home.bucket import BucketHome
from ...engine.home.opening import home_at
from ...schemas.errors import AlreadyPresentError, ConflictError, InvalidArgumentError, NotFoundError, UnavailableError
from ...schemas.protocol.service import StoreService
from ...schemas.store.checkpoint import StoreCopied
from ...schemas.store.pins import CreatePin, KeptPin, OpenPin
from ..executors.executor import LocalExecutor
from ..executors.progress import Show, run_tasks

_ATTEMPTS = 20
"""How often the newest manifest may change before its slot is read."""


def copy_store(
    store: StoreService, url: str, name: str, source_url: str | None, workers: int | None, show: Show
) -> StoreCopied:
    """Copy a store's files in a bucket, outside its server: see ``nyala.jobs.copy_store``."""
    digest = blake2b(f"{url} {name}".encode(), digest_size=6).hexdigest()
    pin_name = f"copy-to-{name[:40]}-{digest}"
    for former in store.pins():
        if former.name == pin_name:  # of a run that was killed
            _drop(store, former)
    with tempfile.TemporaryDirectory(prefix="nyala-copy-") as scratch:
        disk = LocalFileSystem(scratch)
        return _copied(store, url, name, pin_name, disk, source_url, workers, show)


def _copied(
    store: StoreService,
    url: str,
    name: str,
    pin_name: str,
    disk: LocalFileSystem,
    source_url: str | None,
    workers: int | None,
    show: Show,
) -> StoreCopied:
    target, copied, files = home_at(url, name), 0, 0
    copy, new_uuid = None, uuid.uuid4()
    for _ in range(_ATTEMPTS):
        try:
            pin = store.create_pin(CreatePin(name=pin_name))
        except AlreadyPresentError as error:
            raise _other_run(url, name) from error
        try:
            if copy is None:
                source = _source(store, pin, source_url)
                both = bucket_of_both(source.url, url)
                copy = BucketCopy(source, target, SameService(*both) if both else disk, new_uuid)
            missing = copy.begin(pin.pin_id)
            if missing is None:
                continue
            for _, size in run_tasks(LocalExecutor(workers), copy.bring, missing, _no_rows, f"copy to {name}", show):
                copied, files = copied + size, files + 1
            return StoreCopied(
                url=url,
                name=name,
                timestamp=pin.snapshot,
                store_uuid=new_uuid.hex,
                objects_deleted=copy.end(),
                files_copied=files,
                bytes_copied=copied,
            )
        except FileNotFoundError as error:  # what the log attached was merged meanwhile, or nothing keeps the files
            if all(each.pin_id != pin.pin_id for each in store.pins()):
                raise _other_run(url, name) from error
            continue
        finally:
            _drop(store, pin)
    raise UnavailableError("the tables change faster than their files can be listed: try again later", 1.0)


def _source(store: StoreService, pin: KeptPin, source_url: str | None) -> BucketHome:
    """Return where a store with a pin is; ``source_url`` is its bucket for this process."""
    tables = store.tables()
    if not tables:
        raise InvalidArgumentError("the store has no table: there is nothing to copy")
    place = store.open_pin(OpenPin(pin_id=pin.pin_id, table=tables[0])).pinned.bucket
    assert place is not None, "a pin of all tables is in a bucket"
    url = source_url or place.url
    return BucketHome(bucket_of(url), place.prefix.removeprefix("stores/").rstrip("/"), url)


def _other_run(url: str, name: str) -> ConflictError:
    return ConflictError(
        f"another run copies to {name} in {url}, and has dropped the pin of this run: wait until the other run ends"
    )


def _drop(store: StoreService, pin: KeptPin) -> None:
    with suppress(NotFoundError, UnavailableError):  # the next run drops it
        store.drop_pin(pin.pin_id)


def _no_rows(size: int) -> int:
    return 0
