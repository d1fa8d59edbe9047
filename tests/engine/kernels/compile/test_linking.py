"""From an object file to an image, for each kind of processor that libraries are made for."""

import struct
from pathlib import Path

import pytest

from nyala.engine.kernels.ahead import trial
from nyala.engine.kernels.ahead.image import load_image, read_library
from nyala.engine.kernels.ahead.levels import LEVELS, usable_levels
from nyala.engine.kernels.ahead.library import c_functions
from nyala.engine.kernels.ahead.private import KERNELS_DIRECTORY
from nyala.engine.kernels.compile.aarch64 import ArmReferences
from nyala.engine.kernels.compile.linking import link
from nyala.engine.kernels.compile.making import compile_library
from nyala.engine.kernels.compile.object_file import Reference, Symbol
from nyala.engine.kernels.compile.references import Image

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"


def object_of(text: str, triple: str = X86) -> bytes:
    """Compile LLVM's language to an object file."""
    from llvmlite import binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(opt=1, reloc="pic", codemodel="small")
    return machine.emit_object(llvm.parse_assembly(text))


VARIABLE = """
@count = global i64 0
define i64 @next() {
  %old = load i64, ptr @count
  %new = add i64 %old, 1
  store i64 %new, ptr @count
  ret i64 %new
}
"""
CALLS = """
@table = constant [2 x ptr] [ptr @one, ptr @two]
declare i64 @outside(i64)
define i64 @one(i64 %x) {
  %r = call i64 @outside(i64 %x)
  ret i64 %r
}
define i64 @two(i64 %x) {
  ret i64 2
}
define i64 @pick(i64 %n, i64 %x) {
  %place = getelementptr [2 x ptr], ptr @table, i64 0, i64 %n
  %function = load ptr, ptr %place
  %r = call i64 %function(i64 %x)
  ret i64 %r
}
"""


@pytest.mark.parametrize("triple", [X86, ARM])
def test_kernels_with_variables_are_refused(triple: str) -> None:
    with pytest.raises(ValueError, match="variable: count"):
        link(object_of(VARIABLE, triple), ())


@pytest.mark.parametrize("triple", [X86, ARM])
def test_functions_that_nobody_knows_are_refused(triple: str) -> None:
    """A kernel that calls one would end the process."""
    with pytest.raises(ValueError, match="'outside' is no function that kernels may call"):
        link(object_of(CALLS, triple), ("inside",))


@pytest.mark.parametrize("name", ["PyErr_SetString", "_Py_Dealloc", "log10"])
@pytest.mark.parametrize("triple", [X86, ARM])
def test_what_words_an_exception_is_not_needed(triple: str, name: str) -> None:
    assert not link(object_of(CALLS.replace("outside", name), triple), ()).imports


def test_kernels_count_no_digits_with_log10() -> None:
    """The linker takes it for a part of an exception."""
    sources = [path for path in KERNELS_DIRECTORY.rglob("*.py") if path.name != "references.py"]
    assert len(sources) > 50 and not [path for path in sources if "log10" in path.read_text()]


@pytest.mark.skipif(usable_levels()[-1:] != [LEVELS[3]], reason="the code is of x86-64")
def test_calls_and_constants_are_found_wherever_the_image_is() -> None:
    import ctypes

    from nyala.engine.kernels.ahead.image import Entry, Header, load_image

    image = link(object_of(CALLS), {"outside"})
    assert set(image.imports.values()) == {"outside"}
    assert len(image.content) % 4096 == 0
    outside = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: x * 10)
    entries = {"pick": Entry(image.symbols["pick"], "int64", ["int64", "int64"])}
    header = Header("", "", entries, image.imports, image.own)
    address = ctypes.cast(outside, ctypes.c_void_p).value
    assert address
    pick = load_image(header, bytes(image.content), {"outside": address})["pick"]
    assert [pick(0, 7), pick(1, 7)] == [70, 2]


def instructions(content: bytes, at: int, count: int) -> list[int]:
    return list(struct.unpack_from(f"<{count}I", content, at))


def page_reached(content: bytes, at: int) -> int:
    """Return the page that an ``adrp`` at a place computes."""
    (word,) = instructions(content, at, 1)
    assert word & 0x9F000000 == 0x90000000
    pages = (word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3
    return (at >> 12 << 12) + ((pages ^ 1 << 20) - (1 << 20) << 12)


def called_from(content: bytes, at: int) -> int:
    """Return where a branch at a place goes."""
    (word,) = instructions(content, at, 1)
    assert word >> 26 & 0x1F == 5
    return at + ((word & 0x3FFFFFF ^ 1 << 25) - (1 << 25) << 2)


def test_calls_and_constants_of_arm_are_found_wherever_the_image_is() -> None:
    image = link(object_of(CALLS, ARM), {"outside"})
    content, one, pick = bytes(image.content), image.symbols["one"], image.symbols["pick"]
    ((slot, name),) = image.imports.items()
    assert name == "outside" and len(content) % 4096 == 0
    (branch,) = [at for at in range(one, one + 16, 4) if instructions(content, at, 1)[0] >> 26 & 0x1F == 5]
    jump = called_from(content, branch)
    page, load, last = instructions(content, jump, 3)
    assert page & 31 == 16 and load & ~(0xFFF << 10) == 0xF9400210 and last == 0xD61F0200  # br x16
    assert page_reached(content, jump) + (load >> 10 & 0xFFF) * 8 == slot
    (at,) = [at for at in range(pick, pick + 24, 4) if instructions(content, at, 1)[0] & 0x9F000000 == 0x90000000]
    following = instructions(content, at + 4, 1)[0]
    table = image.symbols["table"]
    if following >> 22 == 0x91000000 >> 22:
        assert page_reached(content, at) + (following >> 10 & 0xFFF) == table
    else:  # by the table of addresses
        assert image.own[page_reached(content, at) + (following >> 10 & 0xFFF) * 8] == table
    assert [image.own[table], image.own[table + 8]] == [one, image.symbols["two"]]


def arm_references(place: int) -> tuple[Image, ArmReferences]:
    image = Image(content=bytearray(16))
    return image, ArmReferences(image, [Symbol("x", 1, 0)], {1: place}, ())


@pytest.mark.parametrize(("kind", "scale"), [(277, 1), (278, 1), (284, 2), (285, 4), (286, 8), (299, 16)])
def test_places_in_a_page_count_in_units_of_what_is_loaded(kind: int, scale: int) -> None:
    image, references = arm_references(0x12340)
    references.write(4, Reference(4, kind, 0, 0x10))
    assert instructions(bytes(image.content), 4, 1)[0] == 0x350 // scale << 10


def test_pages_before_the_code_are_reached_too() -> None:
    image, references = arm_references(0)
    image.content.extend(bytes(0x3000))
    image.content[0x2004:0x2008] = struct.pack("<I", 0x90000000)
    references.write(0x2004, Reference(4, 275, 0, 0))
    assert page_reached(bytes(image.content), 0x2004) == 0
    references.write(0x2008, Reference(8, 261, 0, 4))
    assert struct.unpack_from("<i", image.content, 0x2008) == (4 - 0x2008,)


@pytest.mark.parametrize(
    ("place", "reference"),
    [
        (1 << 28, Reference(0, 283, 0, 0)),
        (1, Reference(0, 283, 0, 0)),
        (1 << 33, Reference(0, 275, 0, 0)),
        (4, Reference(0, 286, 0, 0)),
        (0, Reference(0, 999, 0, 0)),
    ],
)
def test_what_no_instruction_reaches_is_refused(place: int, reference: Reference) -> None:
    _, references = arm_references(place)
    with pytest.raises(ValueError):
        references.write(0, reference)


@pytest.mark.parametrize("name", ["x86-64-v2", "aarch64"])
def test_any_machine_makes_a_library_of_any_level(name: str, tmp_path: Path) -> None:
    """Of a few kernels, those of the trial. `make aarch64` tries all on an emulated Arm."""
    level = next(level for level in LEVELS if level.name == name)
    header, image = read_library(compile_library(tmp_path, level, modules=["blocks"]))
    assert header.level == name and {entry.partition(".")[0] for entry in header.entries} == {"blocks"}
    assert {"memcpy", "nyala_LZ4_compress_fast"} <= {*header.imports.values()}
    if level in usable_levels():
        assert trial.works(load_image(header, image, c_functions()))
