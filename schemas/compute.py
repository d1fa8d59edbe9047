"""The functions of ``pyarrow.compute``, which is imported when the first is used: that takes a tenth of a start.

::

    from ..schemas import compute as pc
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyarrow.compute import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]


def __getattr__(name: str) -> Any:
    import pyarrow.compute

    value = globals()[name] = getattr(pyarrow.compute, name)
    return value
