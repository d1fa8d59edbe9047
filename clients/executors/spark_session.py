"""Configures a Spark session for the data source."""

from __future__ import annotations

import os
import site
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

from pyspark.sql import SparkSession

from ...schemas.errors import InvalidArgumentError
from .spark_shim import CATALOG, EXTENSIONS, default_jar, why_not

_SETTINGS = {
    # Connect the JVM and Python by a Unix socket: a small query takes half the time.
    "spark.python.unix.domain.socket.enabled": "true",
    # Limit batches to Python by rows only (10,000 by default), not by bytes, as before Spark 4.1: with a byte limit
    # Spark 4.3 sums the sizes of all columns after every row, which takes half the time of a write.
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),
    # Columns of times: Spark 4.3 has the type, but statements with one are errors by default.
    "spark.sql.timeType.enabled": "true",
}
_WITHOUT_SHUFFLES = {
    # Join and group by more columns than a table is hashed by without a shuffle, and by fewer.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.sources.v2.bucketing.allowKeysSubsetOfPartitionKeys.enabled": "true",
}
_JARS = "spark.jars"
_EXTENSIONS = "spark.sql.extensions"


def configure(
    builder: SparkSession.Builder, uri: str | None = None, shim: bool | str | Path | None = None
) -> SparkSession.Builder:
    """Return a Spark session's ``builder`` with settings that make the data source fast; existing settings are kept.

    Call it before the session is created: Spark reads some settings only then. In a checkout it also lets Spark find
    ``format("nyala")``; an installed package is found anyway.

    ``shim`` controls the Java shim: None uses it if it was built for this Spark, False never; True, or the path of the
    jar, always. With the shim, ``uri`` is the server whose tables SQL calls ``nyala.default.<table>``.

    Raises:
        InvalidArgumentError: the shim must be used but cannot be.
    """
    chosen = getattr(builder, "_options", {})
    jar = None if _is_elsewhere(chosen) else _usable(shim)
    for name, value in (_SETTINGS | (_with_shim(chosen, jar, uri) if jar else {})).items():
        if name not in chosen or name in (_JARS, _EXTENSIONS):
            builder.config(name, value)
    if str(chosen.get("spark.remote", chosen.get("spark.master", "local"))).startswith("local"):
        # By default Spark takes the python3 on the path: another one if the virtual environment is not activated.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _let_spark_find_the_package()
    return builder


def _is_elsewhere(chosen: dict[str, str]) -> bool:
    """Return whether the session is on a Spark Connect server, whose class path cannot be set here."""
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
    return settings | _WITHOUT_SHUFFLES | ({"spark.sql.catalog.nyala.uri": uri} if uri else {})


def _with(chosen: dict[str, str], name: str, more: str) -> str:
    """Return a list setting with one more entry."""
    there = [entry.strip() for entry in str(chosen.get(name, "")).split(",")]
    return ",".join(dict.fromkeys([*filter(None, there), more]))


def _let_spark_find_the_package() -> None:
    """Spark's processes search the folders of ``sys.path``; an editable install is in none of them."""
    face = find_spec("nyala")  # `pyspark_nyala` is beside it
    assert face is not None and face.origin is not None
    home = str(Path(face.origin).parent.parent)
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if home not in (*site.getsitepackages(), site.getusersitepackages(), *given):
        os.environ["PYTHONPATH"] = os.pathsep.join([home, *filter(None, given)])
