"""Copies of a store in a bucket, as stores of their own: in another bucket, or under another name.

A copy shows what the loss of its holder at one moment would have left, and the store goes on meanwhile:

1. The *mark* of a copy is put, and what is at the target is listed.
2. The *cut*: the newest slot, while it names the manifest of a pin, which holds the files; and the records of the log
   that this manifest may lack.
3. The files that the target lacks are copied, under their names. Those that it has are the same if the same process
   made them. Else the source was put back to an earlier state since: nothing is copied, and the copy stays as it is.
4. A manifest is put, which has another uuid; and then one slot with all records of the cut, which are in chunks if
   they are many bytes. That slot is created if its number is free, as any. From then on the copy is there; before, the
   former one was, or none.
5. What was listed, and does not belong to the copy any more, is deleted. It was dropped before the cut, so no later
   copy can need it.

The slot says by its holder, which is the uuid of the source, that nobody has opened the copy. Whoever does claims the
next slot: then no copy is made there any more. So the names of files stay apart: those of the copy have reigns of the
source, up to that of its slot, and who opens it begins the next one. If the source has had another reign since the
former copy, whoever opened that one while a run goes on would begin the reign whose files the run brings. So the run
says first, in a slot that repeats the former copy, that it has the reign of the cut.
"""

from __future__ import annotations

import errno
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid5

from ...schemas.errors import ConflictError, CorruptionError, InvalidArgumentError, UnavailableError
from ..bucket import Bucket
from ..cfile.reader import CFileReader
from ..commit.authors_file import NAME as AUTHORS
from ..fs.failures import named
from ..fs.filesystem import FileSystem
from ..home import copy_mark
from ..home.bucket import BucketHome
from ..home.copy_makers import CopyMakers, read_copy_makers, write_copy_makers
from ..home.copy_mark import CopyMark, read_copy_mark
from ..home.manifests import DIRECTORY, file_paths
from ..manifest import files
from ..manifest.makers import maker_of, reign_of
from ..manifest.manifest import Manifest, pack_manifest
from ..recovery.bucket_state import state_of
from ..wal.slots.bucket_slots import CHUNKS, LOG
from ..wal.slots.chunk import PayloadChunk, chunk_name
from ..wal.slots.pace import Pace
from ..wal.slots.reader import SlotReader, newest_slot
from ..wal.slots.slot import NO_EPOCH, NO_NONCE, Slot, SlotHeader, SlotKind, encode_slot, path_of
from ..wal.slots.upload import Upload

_PIECE_BYTES = 8 << 20
_SLOT_BYTES = 1 << 20
"""A larger payload is put in chunks, so that no request takes long."""
_PACE_SECONDS = 5.0
"""A fifth of this is what a request should take. Nobody has a lease here."""


@dataclass(frozen=True, slots=True)
class SameService:
    """A bucket that has both stores, the one that is copied and the copy, so that it can copy an object itself."""

    bucket: Bucket
    source: str
    """What stands there before the names of the source's bucket."""
    target: str


@dataclass(frozen=True, slots=True)
class _SlotCut:
    """The state of a store at one slot."""

    header: SlotHeader
    first_lsn: int
    records: list[memoryview] = field(default_factory=list[memoryview])
    count: int = 0


@dataclass(frozen=True, slots=True)
class FileToCopy:
    """A file of a store that its copy in a bucket lacks."""

    path: str
    size: int
    written_as: int | None = None
    """See RowsetEntry."""


class BucketCopy:
    """One run that copies a store in a bucket: ``begin``, then ``bring`` each file in any threads, then ``end``."""

    def __init__(self, source: BucketHome, target: BucketHome, via: SameService | FileSystem, new_uuid: UUID) -> None:
        """``via`` copies objects without their bytes coming here, or is a disk for those that are on their way;
        ``new_uuid`` is that of the copy."""
        same = via if isinstance(via, SameService) else None
        if same and (same.source + source.prefix) == (same.target + target.prefix):
            raise InvalidArgumentError(f"{source.where} cannot be copied to itself: give another name or bucket")
        self._source = source
        self._target = target
        self._via = via
        self._uuid = new_uuid
        self._cut: _SlotCut | None = None
        self._manifest: Manifest | None = None
        """That of the cut."""
        self._named: dict[str, int] = {}
        self._before: dict[str, int] = {}
        """The objects at the target when the cut was made, with their sizes; and those that the run brings."""
        self._former: Slot | None = None
        """The newest slot at the target."""
        self._end: int | None = None
        """Its number."""
        self._reign = 0
        """Its reign."""
        self._makers: dict[int, str] = {}
        """Who made the files at the target, by their reigns."""
        self._doubtful: set[str] = set()
        """Those of which nobody noted it."""

    def begin(self, pin_id: str) -> list[FileToCopy] | None:
        """Return the files that the target lacks, of the store as of its newest slot; None if another manifest than
        that with this pin counts by now: then begin again with another pin, which takes less time, as what is at the
        target was listed.

        Raises:
            ConflictError: the target has another store, or a copy that was opened, also at this moment.
            CorruptionError, NotFoundError, UnavailableError: as ``state_of``.
        """
        self._cut = self._manifest = None
        if self._end is None:
            self._prepare()
        state = state_of(self._source)  # after what is at the target was listed
        newest = state.newest.header
        if (pin_id, newest.manifest) not in {(pin.id, pin.manifest) for pin in state.written.pins}:
            return None
        self._manifest = state.written.model_copy(update={"makers": state.manifest.makers})
        self._cut = _cut_at(newest, state.reader)
        self._check_history(newest.reign, state.manifest.makers)
        self._keep_names_apart(newest.reign)
        self._note_makers(state.manifest.makers)
        self._named = dict(self._sizes(state.manifest))
        written_as = _written_as(state.manifest)
        return [
            FileToCopy(path, size, written_as.get(files.id_of(path.rpartition("/")[2])))
            for path, size in self._named.items()
            if self._before.get(path) != size or path in self._doubtful
        ]

    def bring(self, file: FileToCopy) -> int:
        """Copy a file; return its bytes. It is not copied again if the run has to begin again.

        Raises:
            FileNotFoundError: it is gone: begin again.
            CorruptionError: it is not what was written.
            UnavailableError: a bucket does not answer.
        """
        name, new_name, via = self._source.prefix + file.path, self._target.prefix + file.path, self._via
        if isinstance(via, SameService):
            via.bucket.copy(via.source + name, via.target + new_name)
        else:
            self._carry(file, name, new_name, via)
        self._before[file.path] = file.size
        self._doubtful.discard(file.path)
        return file.size

    def end(self) -> int:
        """Let the target be the copy; return the number of objects that were deleted there.

        Raises:
            ConflictError: somebody opened the store there meanwhile, or another run copied to it.
            CorruptionError: a file is not there as it was copied.
            UnavailableError: a bucket does not answer; the copy may be there, or appear later.
        """
        cut, raw, bucket, prefix = self._cut, self._manifest, self._target.bucket, self._target.prefix
        assert cut is not None and raw is not None, "it was begun"
        there = dict(self._listed(f"{files.ROOT}/"))
        if self._target.slots.end() != self._end:  # who opens a copy removes what it does not name
            raise self._overtaken()
        for path, size in self._named.items():
            if there.get(path) != size:
                bytes_there = there.get(path, "none")
                raise CorruptionError(path, 0, f"{self._target.where} has {bytes_there} of the {size} bytes copied")
        name = cut.header.manifest
        document = pack_manifest(raw.model_copy(update={"store_uuid": self._uuid.hex, "pins": (), "clean_stop": None}))
        bucket.put(f"{prefix}{DIRECTORY}{name}", document)
        with suppress(FileNotFoundError):  # what it says of later commits, nobody reads
            bucket.put(prefix + AUTHORS, self._source.bucket.get(self._source.prefix + AUTHORS))
        header = replace(
            cut.header,
            store_uuid=self._uuid.bytes,
            holder=cut.header.store_uuid,
            manifest_crc=zlib.crc32(document),
        )
        former = dict(self._before)
        self._write_slots(replace(cut, header=header))
        deleted = self._sweep(name, former)
        write_copy_makers(bucket, prefix, CopyMakers(makers=raw.makers))
        return deleted

    def _prepare(self) -> None:
        """Mark the target, and note what is there."""
        home, of_source = self._target, newest_slot(self._source.slots)
        if of_source is None:
            raise self._source.missing()
        source_uuid, newest = of_source.header.store_uuid, newest_slot(home.slots)
        if newest is not None and newest.header.holder != source_uuid:
            raise ConflictError(
                f"{home.where} has another store, or a copy that was opened since: copy to another name, or delete the "
                f"objects below {home.prefix} first"
            )
        mark = CopyMark(source=source_uuid.hex())
        if newest is None and read_copy_mark(home.bucket, home.prefix) is None and home.bucket.list(home.prefix):
            raise ConflictError(f"there are other objects below {home.prefix} in {home.url}: copy to another name")
        home.bucket.create(home.prefix + copy_mark.NAME, copy_mark.DOCUMENT.pack(mark))
        if read_copy_mark(home.bucket, home.prefix) != mark:
            raise ConflictError(f"{home.where} is for copies of another store: copy to another name")
        if newest is None and home.has_store():
            raise ConflictError(f"another process has just created a store at {home.where}: copy to another name")
        self._former, self._end = newest, newest.header.number if newest else 0
        self._reign = newest.header.reign if newest else 0
        self._before = dict(self._listed(""))
        self._makers = read_copy_makers(home.bucket, home.prefix).makers
        self._doubtful = {path for path in self._before if reign_of(path) and not maker_of(self._makers, path)}

    def _check_history(self, reign: int, makers: Mapping[int, str]) -> None:
        """Raise ConflictError if the target has other files under the names of the source's, or may have."""
        known = self._makers
        if reign < self._reign or any(known.get(each, maker) != maker for each, maker in makers.items()):
            raise ConflictError(
                f"the objects of {self._source.where} were put back to an earlier state after they were copied to "
                f"{self._target.where}: copy to another name, or delete the objects below {self._target.prefix} first"
            )

    def _note_makers(self, makers: Mapping[int, str]) -> None:
        """Take note at the target who made the files that are to be brought."""
        known, doubtful = self._makers, set(map(reign_of, self._doubtful))
        new = {each: maker for each, maker in makers.items() if each not in known and each not in doubtful}
        if new:
            self._makers = {**known, **new}
            write_copy_makers(self._target.bucket, self._target.prefix, CopyMakers(makers=self._makers))

    def _listed(self, directory: str) -> Iterator[tuple[str, int]]:
        """Yield the paths of the objects at the target, and their sizes."""
        prefix = self._target.prefix
        for name, size in self._target.bucket.list(prefix + directory):
            yield name.removeprefix(prefix), size

    def _sizes(self, manifest: Manifest) -> Iterator[tuple[str, int]]:
        """Yield the files that a manifest names, and their sizes."""
        prefix = self._source.prefix
        there = dict(self._source.bucket.list(f"{prefix}{files.ROOT}/"))
        for path in dict.fromkeys(file_paths(manifest)):
            if prefix + path not in there:
                raise FileNotFoundError(errno.ENOENT, "no such object", prefix + path)
            yield path, there[prefix + path]

    def _carry(self, file: FileToCopy, name: str, new_name: str, disk: FileSystem) -> None:
        """Copy a file by a disk, and check its pages."""
        fetched = file.path.replace("/", "-")
        try:
            self._fetch(name, file.size, disk, fetched)
            with named(f"{name} could not be copied"):
                _check(disk, fetched, file)
                content = disk.open(fetched)
                try:
                    self._target.bucket.put(new_name, content)
                finally:
                    content.close()
        finally:
            with suppress(OSError):
                disk.unlink(fetched)

    def _fetch(self, name: str, size: int, disk: FileSystem, path: str) -> None:
        """Put an object of the source on a disk."""
        fetched = disk.create(path)
        try:
            for offset in range(0, size, _PIECE_BYTES):
                piece = self._source.bucket.get_range(name, offset, min(_PIECE_BYTES, size - offset))
                with named(f"{name} could not be copied"):
                    fetched.append(piece)
            fetched.flush()
        finally:
            fetched.close()

    def _keep_names_apart(self, reign: int) -> None:
        """Let whoever opens the former copy from now on begin a reign above this one, that of the cut."""
        former = self._former
        if former is None or self._reign >= reign:
            return
        repeated = _cut_at(former.header, SlotReader(self._target.slots, former))
        self._write_slots(replace(repeated, header=replace(former.header, reign=reign)))
        self._reign = reign

    def _write_slots(self, cut: _SlotCut) -> None:
        """Create the slot that makes a copy; and if it has records, one that releases it."""
        assert self._end is not None, "it was begun"
        number = self._end + 1
        header = replace(
            cut.header,
            kind=SlotKind.RECORDS if cut.count else SlotKind.RELEASE,
            count=cut.count,
            nonce=NO_NONCE,
            number=number,
            epoch=NO_EPOCH,
            previous_crc=0,
            first_lsn=cut.first_lsn,
            safe=cut.header.safe if cut.count else cut.header.ceiling,
            needed_slot=number,
        )
        header, chunks = self._put_chunks(header, cut.records)
        content, slot_crc = encode_slot(header, cut.records, chunks)
        if not self._created(number, content) or self._target.slots.end() != number:
            raise self._overtaken()  # a number is free again once others have come further
        if cut.count:
            released = replace(
                header,
                kind=SlotKind.RELEASE,
                count=0,
                nonce=NO_NONCE,
                number=number + 1,
                previous_crc=slot_crc,
                first_lsn=header.next_lsn,
                safe=header.ceiling,
            )
            content, _ = encode_slot(released, ())
            with suppress(UnavailableError):  # whoever opens it waits for the silence of a holder that is not there
                self._created(number + 1, content)

    def _put_chunks(
        self, header: SlotHeader, payload: Sequence[memoryview]
    ) -> tuple[SlotHeader, Sequence[PayloadChunk]]:
        """Put the payload of a slot, if it is large, as chunks, before the slot that has the header."""
        if sum(map(len, payload)) <= _SLOT_BYTES:
            return header, ()
        nonce, home = uuid5(self._uuid, str(header.number)).bytes, self._target
        upload = Upload(home.slots, Pace(_PACE_SECONDS), header.reign, nonce, payload, home.seconds_since_boot)
        upload.put_rest()
        for index, chunk in enumerate(upload.chunks):
            self._before[CHUNKS + chunk_name(header.reign, nonce, index)] = chunk.size_bytes
        return replace(header, nonce=nonce), upload.chunks

    def _created(self, number: int, content: bytes) -> bool:
        """Create a slot, unless its number is not free."""
        if not self._target.slots.create(number, content):
            return False
        self._end = number
        self._before[path_of(number)] = len(content)  # the next slot replaces it
        return True

    def _overtaken(self) -> ConflictError:
        return ConflictError(
            f"another process opened {self._target.where} meanwhile, or another run copied to it: copy again"
        )

    def _sweep(self, manifest: str, former: Iterable[str]) -> int:
        """Delete what was at the target, and does not belong to the copy."""
        kept = {DIRECTORY + manifest, *self._named}
        old = (f"{files.ROOT}/", DIRECTORY, LOG, CHUNKS)
        gone = [path for path in former if path.startswith(old) and path not in kept]
        self._target.bucket.delete([self._target.prefix + path for path in gone])
        return len(gone)


def _cut_at(newest: SlotHeader, reader: SlotReader) -> _SlotCut:
    """Return the state at the newest slot of a log. Raises CorruptionError and UnavailableError."""
    slots = list(reader.read())
    records = [slot for slot in slots if slot.header.kind is SlotKind.RECORDS]
    count = sum(slot.header.count for slot in records)
    return _SlotCut(newest, slots[0].header.first_lsn, [slot.payload for slot in records], count)


def _written_as(manifest: Manifest) -> dict[int, int]:
    """Return the numbers under which copied files were written, by their numbers in the store."""
    tablets = [tablet for table in manifest.tables for tablet in table.tablets]
    rowsets = [rowset for tablet in tablets for rowset in tablet.rowsets]
    rowsets += [rowset for tablet in tablets if tablet.arriving for rowset in tablet.arriving.rowsets]
    return {number: former for rowset in rowsets for number, former in rowset.written_as.items()}


def _check(disk: FileSystem, path: str, file: FileToCopy) -> None:
    """Check the pages of a file that was fetched."""
    try:
        number = files.id_of(file.path.rpartition("/")[2])
        reader = CFileReader.open(disk, path, number, written_as=file.written_as)
        try:
            reader.verify_checksums()
        finally:
            reader.close()
    except CorruptionError as error:
        raise CorruptionError(file.path, error.offset, error.why) from error
