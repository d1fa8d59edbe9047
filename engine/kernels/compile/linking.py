"""Turns one object file into the image of a library.

Sections with code and constants stand one behind the other, so distances between them are known here for good. What is
not known goes to a table at the end: addresses of C functions, which code reaches by a jump through the table, and of
the image's own constants.
"""

from __future__ import annotations

from collections.abc import Collection

from .aarch64 import ArmReferences
from .object_file import AARCH64, X86_64, ObjectFile
from .references import Image
from .x86_64 import X86References

_PAGE_BYTES = 4096
_KINDS = {X86_64: X86References, AARCH64: ArmReferences}
_UNUSED = "_ZN08NumbaEnv"
"""Places for an object that numba's own callers set: here they stay empty."""
_MARK = "$"
"""Symbols that say whether code or data begins."""


def link(obj: bytes, functions: Collection[str]) -> Image:
    """Link an object file that may call ``functions``: return it as the image of a library of kernels.

    Raises ValueError if the file has variables, which kernels must not have, or refers to something in an unknown way.
    """
    file = ObjectFile(obj)
    _check_variables(file)
    image = Image()
    places: dict[int, int] = {}
    for number, section in enumerate(file.sections):
        if section.is_needed:
            place = places[number] = image.reserve(section.size, section.alignment)
            content = file.content(section)
            image.content[place : place + len(content)] = content
    for symbol in file.symbols:
        if symbol.name and symbol.section in places:
            image.symbols[symbol.name] = places[symbol.section] + symbol.value
    references = _KINDS[file.machine](image, file.symbols, places, functions)
    for section, reference in file.references():
        if section in places:
            references.write(places[section] + reference.at, reference)
    image.reserve(0, _PAGE_BYTES)
    return image


def _check_variables(file: ObjectFile) -> None:
    for symbol in file.symbols:
        if not 0 < symbol.section < len(file.sections) or not symbol.name or symbol.name.startswith((_UNUSED, _MARK)):
            continue
        if file.sections[symbol.section].is_variable:
            raise ValueError(f"the kernels have a variable: {symbol.name}")
