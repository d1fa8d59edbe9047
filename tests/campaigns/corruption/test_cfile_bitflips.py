"""No damage to a cfile may change a row or crash: it is found, or it does not matter.

Small files of each kind, with every physical type, encoding and compression between them, are damaged in every way
that is cheap to enumerate: each bit flipped, cut at each length, pages exchanged, bytes sealed anew after a flip.
"""

from functools import partial

import numpy as np
import pytest

from nyala.engine.cfile.footer import Footer, ZoneEntry, pack_footer, unpack_footer
from nyala.engine.cfile.format import StreamKey, seal_page
from nyala.engine.cfile.reader import CFileReader
from nyala.engine.cfile.writer import CFileWriter
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.vectors.physical import PhysicalType
from nyala.engine.vectors.vector import BytesVector, FixedVector, as_bytes
from nyala.schemas.errors import CorruptionError, InvalidArgumentError
from tests.dose import dose

FILE_ID = 9
ROWS = 33
VALID = np.arange(ROWS) % 5 != 2


def integers(dtype, valid=None):
    values = (np.arange(ROWS) // 3).astype(dtype)
    if valid is not None:
        values[~valid] = 0
    return FixedVector(values, valid)


def words(valid=None):
    lengths = np.arange(ROWS) % 4 * (1 if valid is None else valid)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    letters = [b"abcd"[:length] for length in lengths]
    return BytesVector(offsets, np.frombuffer(b"".join(letters), np.uint8), valid)


WIDE = FixedVector(np.zeros(ROWS, PhysicalType.INT128.dtype))
NONE_VALID = FixedVector(np.zeros(ROWS, np.int16), np.zeros(ROWS, bool))
FILES = {
    "base": [
        (PhysicalType.INT64, integers("i8", VALID), "bitshuffle", "none"),
        (PhysicalType.BYTES, words(VALID), "dictionary", "none"),
        (PhysicalType.BOOL, FixedVector((np.arange(ROWS) > 20).astype("u1")), "run_length", "none"),
        (PhysicalType.BYTES, words(), "prefix", "none"),
    ],
    "redo": [
        (PhysicalType.INT32, integers("i4"), "plain", "lz4"),
        (PhysicalType.FLOAT64, integers("f8", VALID), "plain", "zstd"),
        (PhysicalType.BYTES, words(VALID), "plain", "snappy"),
    ],
    "undo": [
        (PhysicalType.INT64, integers("i8"), "run_length", "none"),
        (PhysicalType.INT128, WIDE, "plain", "zlib"),
        (PhysicalType.INT32, integers("i4", VALID), "frame_of_reference", "none"),
        (PhysicalType.INT16, NONE_VALID, "bitshuffle", "none"),
    ],
    "base in newer encodings": [
        (PhysicalType.FLOAT64, integers("f8", VALID), "alp", "none"),
        (PhysicalType.FLOAT32, integers("f4"), "alp", "none"),
        (PhysicalType.BYTES, words(VALID), "fsst", "none"),
        (PhysicalType.BYTES, words(), "auto", "none"),
    ],
}


def image_of(kind, file_id=FILE_ID):
    fs = MemoryFileSystem()
    with CFileWriter(fs, "file", file_id, kind.split()[0]) as writer:
        for column, (physical, vector, encoding, compression) in enumerate(FILES[kind]):
            writer.write_stream(StreamKey(column, "base"), physical, [vector], encoding, compression)
        writer.finish({"flushed": 1})
    return bytes(fs.open("file").view())


def open_image(image):
    fs = MemoryFileSystem()
    fs.create("file").append(image)
    return CFileReader.open(fs, "file", FILE_ID)


def rows_of(reader):
    """Every cell of every stream, read and gathered, as bytes."""
    rows = []
    for key in reader.streams():
        stream = reader.stream(key)
        for vector in (stream.read(0, ROWS), stream.gather(np.arange(ROWS)[::-1])):
            valid = None if vector.valid is None else vector.valid.tobytes()
            if isinstance(vector, FixedVector):
                rows.append((key, vector.values.tobytes(), valid))
            else:
                cells = as_bytes(vector)
                rows.append((key, cells.offsets.tobytes(), cells.data.tobytes(), valid))
    return rows


def with_flip(image, bit):
    damaged = bytearray(image)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


@pytest.fixture(scope="module", params=list(FILES))
def image(request):
    return image_of(request.param)


def test_the_files_are_sound_and_small(image):
    reader = open_image(image)
    reader.verify()
    assert len(rows_of(reader)) == 2 * len(reader.streams())
    assert len(image) < 2048


def test_every_bit_flip_is_found_by_reading_and_by_verify(image):
    for bit in range(0, 8 * len(image), dose(3, 1)):
        damaged = with_flip(image, bit)
        with pytest.raises(CorruptionError) as found:
            rows_of(open_image(damaged))
        assert found.value.path == "file" and 0 <= found.value.offset <= len(image)
        with pytest.raises(CorruptionError):
            open_image(damaged).verify()


def test_a_cut_at_every_length_is_found(image):
    for length in range(len(image)):
        with pytest.raises(CorruptionError):
            open_image(image[:length])


def test_bytes_after_the_end_are_found(image):
    for tail in (b"\0", bytes(4096), image[-28:], image):
        with pytest.raises(CorruptionError):
            open_image(image + tail)


def test_another_files_id_is_found(image):
    with pytest.raises(CorruptionError, match="file 9, not file 10"):
        fs = MemoryFileSystem()
        fs.create("file").append(image)
        CFileReader.open(fs, "file", 10)


def page_places(image):
    footer = open_image(image).footer
    return [(page.offset, page.length) for stream in footer.streams for page in stream.all_pages]


def test_pages_of_another_file_are_found():
    image, other = image_of("redo"), image_of("redo", file_id=10)
    for offset, length in page_places(image):
        assert image[offset + 4 : offset + length] == other[offset + 4 : offset + length]
        damaged = image[:offset] + other[offset : offset + length] + image[offset + length :]
        with pytest.raises(CorruptionError, match="checksum"):
            rows_of(open_image(damaged))


def test_pages_that_change_places_are_found():
    fs = MemoryFileSystem()
    with CFileWriter(fs, "file", FILE_ID, "base") as writer:
        for column in range(2):
            cells = FixedVector(np.arange(ROWS) + column)
            writer.write_stream(StreamKey(column, "base"), PhysicalType.INT64, [cells], "plain")
        writer.finish({})
    image = bytes(fs.open("file").view())
    (first, length), (second, same_length) = page_places(image)
    assert length == same_length and second == first + length
    pages = image[first:second], image[second : second + length]
    damaged = image[:first] + pages[1] + pages[0] + image[second + length :]
    for column in range(2):
        with pytest.raises(CorruptionError, match=f"column {column} base page 0: checksum"):
            open_image(damaged).stream(StreamKey(column, "base")).read(0, ROWS)


def test_a_flip_under_a_right_checksum_never_crashes(image):
    """What a checksum cannot see, the page header's rules and the codec's check must make harmless."""
    for offset, length in page_places(image):
        for bit in range(8 * (offset + 4), 8 * (offset + length)):
            damaged = with_flip(image, bit)
            crc = seal_page(FILE_ID, offset, [damaged[offset + 4 : offset + length]])
            reader = open_image(damaged[:offset] + crc + damaged[offset + 4 :])
            for check in (rows_of, CFileReader.verify):
                try:
                    check(reader)
                except CorruptionError as error:
                    assert error.path == "file"


def bytes_of(image, offset, length):
    return np.frombuffer(image, np.uint8)[offset : offset + length]


def with_footer(image, **changes):
    """The same pages under another footer, soundly sealed."""
    footer, offset = unpack_footer("file", len(image), partial(bytes_of, image), FILE_ID)
    changed = Footer.model_validate_json(footer.model_copy(update=changes).model_dump_json())
    return image[:offset] + pack_footer(changed, offset)


def with_stream(image, **changes):
    first, *others = open_image(image).footer.streams
    return with_footer(image, streams=[first.model_copy(update=changes), *others])


@pytest.mark.parametrize(
    "changes",
    [
        {"row_count": ROWS + 1},
        {"row_count": 0},
        {"page_rows": 3},
        {"page_rows": 0},
        {"page_rows": 2**20},
        {"pages": []},
        {"physical": PhysicalType.INT32},
        {"physical": PhysicalType.BYTES},
        {"encodings": ["plain"]},
    ],
)
def test_a_directory_that_lies_is_found_by_verify(changes):
    with pytest.raises(CorruptionError):
        open_image(with_stream(image_of("base"), **changes)).verify()


@pytest.mark.parametrize(
    "changes",
    [
        {"offset": 0},
        {"offset": 2**40},
        {"length": 2**40},
        {"length": 8},
        {"offset": 32},
        {"row_count": 1},
        {"null_count": 0},
        {"zone": ZoneEntry(min=1, max=10, exact=True)},
        {"zone": ZoneEntry(min=0, max="x", exact=True)},
    ],
)
def test_a_page_entry_that_lies_is_found_by_verify(changes):
    image = image_of("base")
    page = open_image(image).footer.streams[0].pages[0]
    with pytest.raises(CorruptionError):
        open_image(with_stream(image, pages=[page.model_copy(update=changes)])).verify()


def test_a_page_left_out_of_the_directory_is_found_by_verify():
    image = image_of("base")
    streams = open_image(image).footer.streams
    for missing in range(len(streams)):
        left = [stream for number, stream in enumerate(streams) if number != missing]
        with pytest.raises(CorruptionError, match=r"ends? (at|here)"):
            open_image(with_footer(image, streams=left)).verify()


def test_a_dictionary_that_is_missing_or_another_page_is_found():
    image = image_of("base")
    streams = open_image(image).footer.streams
    for dictionary in (None, streams[1].pages[0], streams[3].pages[0]):
        changed = [streams[0], streams[1].model_copy(update={"dictionary": dictionary}), *streams[2:]]
        with pytest.raises(CorruptionError, match="column 1 base"):
            open_image(with_footer(image, streams=changed)).stream(StreamKey(1, "base")).read(0, ROWS)


def test_an_unknown_feature_is_refused_by_name():
    with pytest.raises(InvalidArgumentError, match="time_travel"):
        open_image(with_footer(image_of("base"), required_features=["time_travel"]))


def test_a_stray_bit_between_pages_is_found_by_verify_though_its_checksum_is_right():
    image = image_of("base")
    offset, length = page_places(image)[0]
    assert image[offset + length - 1] == 0, "the first page ends in padding"
    damaged = with_flip(image, 8 * (offset + length - 1))
    crc = seal_page(FILE_ID, offset, [damaged[offset + 4 : offset + length]])
    with pytest.raises(CorruptionError, match="padding"):
        open_image(damaged[:offset] + crc + damaged[offset + 4 :]).verify()


def test_two_streams_of_one_name_are_found():
    image = image_of("base")
    streams = open_image(image).footer.streams
    with pytest.raises(CorruptionError, match="two streams"):
        open_image(with_footer(image, streams=[streams[0], *streams]))


def test_a_dictionary_given_out_as_rows_is_found():
    image = image_of("base")
    streams = open_image(image).footer.streams
    page = streams[1].dictionary
    assert page is not None
    changed = streams[1].model_copy(update={"pages": [page], "row_count": page.row_count, "dictionary": None})
    with pytest.raises(CorruptionError, match="values of a dictionary"):
        open_image(with_footer(image, streams=[changed])).stream(StreamKey(1, "base")).read(0, 1)


def test_a_codec_that_does_not_fit_the_type_is_found():
    image = image_of("base")
    changed = open_image(image).footer.streams[3].model_copy(update={"physical": PhysicalType.INT64})
    with pytest.raises(CorruptionError, match="prefix does not fit int64"):
        open_image(with_footer(image, streams=[changed])).stream(StreamKey(3, "base")).read(0, 1)


def test_a_page_with_another_count_of_rows_is_found():
    image = image_of("undo")
    stream = open_image(image).footer.streams[2]
    changes = {"row_count": ROWS - 1, "pages": [stream.pages[0].model_copy(update={"row_count": ROWS - 1})]}
    changed = stream.model_copy(update=changes)
    with pytest.raises(CorruptionError, match="33 rows, but the footer says 32"):
        open_image(with_footer(image, streams=[changed])).stream(StreamKey(2, "base")).read(0, 1)


def test_bounds_for_some_pages_only_are_found():
    fs = MemoryFileSystem()
    with CFileWriter(fs, "file", FILE_ID, "base") as writer:
        cells = FixedVector(np.arange(65_537))
        writer.write_stream(StreamKey(0, "base"), PhysicalType.INT64, [cells], "plain")
        writer.finish({})
    image = bytes(fs.open("file").view())
    first, second = open_image(image).footer.streams[0].pages
    with pytest.raises(CorruptionError, match="only some of its pages"):
        open_image(with_stream(image, pages=[first.model_copy(update={"zone": None}), second]))


def test_a_null_count_that_lies_is_found_also_without_bounds():
    fs = MemoryFileSystem()
    with CFileWriter(fs, "file", FILE_ID, "base") as writer:
        cells = [integers("i8", VALID)]
        writer.write_stream(StreamKey(0, "base"), PhysicalType.INT64, cells, "plain", zone_maps=False)
        writer.finish({})
    image = bytes(fs.open("file").view())
    page = open_image(image).footer.streams[0].pages[0]
    with pytest.raises(CorruptionError, match="7 NULLs, but the footer says 6"):
        open_image(with_stream(image, pages=[page.model_copy(update={"null_count": 6})])).verify()


def test_a_footer_of_another_kind_of_file_is_found():
    with pytest.raises(CorruptionError, match="header and footer"):
        open_image(with_footer(image_of("base"), kind="undo"))
