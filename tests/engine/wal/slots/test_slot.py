"""What is in a slot and how slots follow one another: nothing else passes for it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.engine.wal.format import encode_record
from nyala.engine.wal.slots.chain import Chain
from nyala.engine.wal.slots.chunk import PayloadChunk
from nyala.engine.wal.slots.slot import NO_NONCE, Slot, SlotHeader, SlotKind, decode_slot, encode_slot, payload_of
from nyala.schemas.errors import CorruptionError

U8, U4 = st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)
UUIDS = st.binary(min_size=16, max_size=16)
HEADERS = st.builds(
    SlotHeader,
    kind=st.sampled_from(SlotKind),
    count=st.just(0),
    store_uuid=UUIDS,
    holder=UUIDS,
    nonce=UUIDS,
    number=U8,
    epoch=U8,
    reign=U4,
    previous_crc=U4,
    first_lsn=U8,
    safe=U8,
    ceiling=U8,
    needed_slot=U8,
    needed_lsn=U8,
    manifest=st.text(max_size=20),
    manifest_crc=U4,
)
RECORD = SlotHeader(SlotKind.RECORDS, 2, b"s" * 16, b"h" * 16, NO_NONCE, 8, 7, 2, 5, 42, 900, 999, 6, 40, "m/1", 3)


def made(header: SlotHeader) -> Slot:
    return decode_slot(header.number, content_of(header))


def content_of(header: SlotHeader) -> bytes:
    records = [encode_record(800 + number, [b"x" * number]) for number in range(header.count)]
    return encode_slot(header, payload_of(records))[0]


@given(HEADERS, st.binary(max_size=40))
def test_what_is_encoded_is_decoded(header: SlotHeader, payload: bytes) -> None:
    content, crc = encode_slot(header, [payload[:7], payload[7:]])
    slot = decode_slot(header.number, content)
    assert (slot.header, slot.crc, bytes(slot.payload), slot.size_bytes) == (header, crc, payload, len(content))


def test_no_flipped_bit_passes() -> None:
    whole = content_of(RECORD)
    for position in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptionError):
            decode_slot(8, bytes(flipped))


def test_no_cut_or_longer_slot_passes() -> None:
    whole = content_of(RECORD)
    for content in [*(whole[:length] for length in range(len(whole))), whole + b"\0"]:
        with pytest.raises(CorruptionError):
            decode_slot(8, content)


def test_a_slot_under_another_name_is_refused() -> None:
    with pytest.raises(CorruptionError, match="the name of another slot"):
        decode_slot(9, content_of(RECORD))


def test_records_that_do_not_fill_the_payload_are_refused() -> None:
    content, _ = encode_slot(replace(RECORD, count=3), payload_of([encode_record(1, [b"x"])]))
    with pytest.raises(CorruptionError, match="extends past the end"):
        decode_slot(8, content).records()


CHUNKS = [PayloadChunk(1000, 7), PayloadChunk(1, 8)]


def test_no_flipped_bit_of_a_table_of_chunks_passes() -> None:
    whole, _ = encode_slot(RECORD, [], CHUNKS)
    assert list(decode_slot(8, whole).chunks) == CHUNKS
    for position in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptionError):
            decode_slot(8, bytes(flipped))


@pytest.mark.parametrize(
    ("header", "chunks"),
    [(replace(RECORD, kind=SlotKind.BEAT, count=0), CHUNKS), (RECORD, [PayloadChunk(0, 0)])],
    ids=["of a beat", "an empty one"],
)
def test_chunks_that_nobody_makes_are_refused(header: SlotHeader, chunks: list[PayloadChunk]) -> None:
    with pytest.raises(CorruptionError, match="no table of its"):
        decode_slot(8, encode_slot(header, [], chunks)[0])


def following(last: Slot, **other: object) -> SlotHeader:
    header = last.header
    values: dict[str, object] = {
        "number": header.number + 1,
        "previous_crc": last.crc,
        "first_lsn": header.next_lsn,
    }
    return replace(header, **(values | other))  # type: ignore[arg-type]


def test_slots_that_follow_one_another_pass() -> None:
    chain = Chain(b"s" * 16)
    release = {"kind": SlotKind.RELEASE, "count": 0, "safe": 950, "ceiling": 950}
    for change in ({}, {"kind": SlotKind.BEAT, "count": 0}, release, None):
        last = chain.last or made(RECORD)
        if change is None:
            claim = {"kind": SlotKind.CLAIM, "count": 0, "epoch": last.header.number + 1, "reign": 3}
            change = {**claim, "holder": b"o" * 16}
        chain.follow(last if chain.last is None else made(following(last, **change)))
    assert chain.last and chain.last.header.number == 11


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"number": 10}, "slot 9 is missing"),
        ({"previous_crc": 1}, "does not continue"),
        ({"first_lsn": 45}, "start at 45, not at 44"),
        ({"epoch": 6}, "did not claim"),
        ({"epoch": 8}, "did not claim"),
        ({"reign": 3}, "did not claim"),
        ({"holder": b"o" * 16}, "did not claim"),
        ({"store_uuid": b"o" * 16}, "is of store"),
        ({"safe": 899}, "safe falls from 900 to 899"),
        ({"ceiling": 998}, "ceiling falls"),
        ({"kind": SlotKind.RELEASE, "count": 0}, "releases the log at timestamp 900, but with the ceiling 999"),
        ({"kind": SlotKind.CLAIM, "count": 0, "reign": 3, "epoch": 9, "safe": 998}, "below the ceiling 999"),
        ({"needed_slot": 5}, "needed_slot falls"),
        ({"needed_lsn": 39}, "needed_lsn falls"),
        ({"needed_slot": 10}, "which are later"),
        ({"needed_lsn": 47}, "which are later"),
        ({"kind": SlotKind.CLAIM, "count": 0, "reign": 3, "epoch": 8, "safe": 999}, "8 cannot have the kind CLAIM"),
        ({"kind": SlotKind.CLAIM, "count": 0, "epoch": 9}, "begins reign 2"),
        ({"kind": SlotKind.BEAT}, "2 records cannot have the kind BEAT"),
        ({"count": 0}, "0 records cannot have the kind RECORDS"),
    ],
)
def test_a_slot_that_cannot_follow_is_refused(change: dict[str, object], why: str) -> None:
    chain = Chain()
    chain.follow(made(RECORD))
    assert chain.last
    with pytest.raises(CorruptionError, match=why):
        chain.follow(made(following(chain.last, **change)))


def test_nothing_but_a_claim_follows_a_release() -> None:
    chain = Chain()
    chain.follow(made(replace(RECORD, kind=SlotKind.RELEASE, count=0, ceiling=900)))
    assert chain.last
    with pytest.raises(CorruptionError, match="has released the log"):
        chain.follow(made(following(chain.last, kind=SlotKind.BEAT)))
