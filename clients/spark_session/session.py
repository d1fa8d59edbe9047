"""A Spark session that suits the data source."""

from __future__ import annotations

import os
import site
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

from pyspark.sql import SparkSession

from ...schemas.errors import InvalidArgumentError
from .shim import CATALOG, EXTENSIONS, default_jar, why_not

_SETTINGS = {
    # From the Java machine to Python by a socket in the file system: a small query takes half the time.
    "spark.python.unix.domain.socket.enabled": "true",
    # No limit to the bytes of a batch on the way to Python, only to its rows (10,000 unless set), as before Spark 4.1:
    # with a limit Spark 4.3 adds up the sizes of all columns after every row, which is half of what a write takes.
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
}
_JARS = "spark.jars"
_EXTENSIONS = "spark.sql.extensions"


def configure(
    builder: SparkSession.Builder, uri: str | None = None, shim: bool | str | Path | None = None
) -> SparkSession.Builder:
    """Return ``builder`` with what makes the data source fast; what was set before stays.

    Call it before the session is made: Spark reads some of it only then. It also lets Spark find ``format("nyala")``
    where Nyala runs from a checkout; where it is installed Spark finds it by itself.

    ``shim`` says whether to use the shim in Java: None, where it has been built for this Spark; False, never; True, or
    the jar, always. With it ``uri`` is the server whose tables SQL calls ``nyala.default.<table>``.

    Raises:
        InvalidArgumentError: the shim is to be used always, and cannot be.
    """
    chosen = getattr(builder, "_options", {})
    jar = None if _is_elsewhere(chosen) else _usable(shim)
    for name, value in (_SETTINGS | (_with_shim(chosen, jar, uri) if jar else {})).items():
        if name not in chosen or name in (_JARS, _EXTENSIONS):
            builder.config(name, value)
    if str(chosen.get("spark.remote", chosen.get("spark.master", "local"))).startswith("local"):
        # By itself Spark takes the python3 on the path, which is another one in a virtual environment not activated.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _let_spark_find_the_package()
    return builder


def _is_elsewhere(chosen: dict[str, str]) -> bool:
    """Whether the session is one of a server of Spark Connect: what that has on its class path is its own matter."""
    return not str(chosen.get("spark.remote", "local")).startswith("local")


def _usable(shim: bool | str | Path | None) -> Path | None:
    """Return the jar to use, if any."""
    if shim is False:
        return None
    jar = Path(shim) if isinstance(shim, str | Path) else default_jar()
    if shim is None and not jar.exists():
        return None
    reason = why_not(jar)
    if reason is None:
        return jar
    if shim is not None:
        raise InvalidArgumentError(f"the Java shim cannot be used: {reason}; build it with `nyala spark build-shim`")
    warnings.warn(
        f"the Java shim is not used: {reason}; everything works without it; build it again with `nyala spark "
        "build-shim`",
        RuntimeWarning,
        stacklevel=3,
    )
    return None


def _with_shim(chosen: dict[str, str], jar: Path, uri: str | None) -> dict[str, str]:
    settings = {_JARS: _with(chosen, _JARS, str(jar)), _EXTENSIONS: _with(chosen, _EXTENSIONS, EXTENSIONS)}
    settings["spark.sql.catalog.nyala"] = CATALOG
    return settings | ({"spark.sql.catalog.nyala.uri": uri} if uri else {})


def _with(chosen: dict[str, str], name: str, more: str) -> str:
    """Return a list in a setting with one more in it."""
    return ",".join(dict.fromkeys([*filter(None, str(chosen.get(name, "")).split(",")), more]))


def _let_spark_find_the_package() -> None:
    """Spark lists the folders of ``sys.path`` in a process that it starts; an editable install is in none of them."""
    face = find_spec("nyala")  # `pyspark_nyala` lies beside it
    assert face is not None and face.origin is not None
    home = str(Path(face.origin).parent.parent)
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if home not in (*site.getsitepackages(), site.getusersitepackages(), *given):
        os.environ["PYTHONPATH"] = os.pathsep.join([home, *filter(None, given)])
