"""A Spark session that suits the data source."""

from __future__ import annotations

import os
import site
import sys
from importlib.util import find_spec
from pathlib import Path

from pyspark.sql import SparkSession

_SETTINGS = {
    # From the Java machine to Python by a socket in the file system: a small query takes half the time.
    "spark.python.unix.domain.socket.enabled": "true",
    # Rows in an Arrow batch on the way to a writer.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Return ``builder`` with what makes the data source fast; what was set before stays.

    Call it before the session is made: Spark reads some of it only then. It also lets Spark find ``format("nyala")``
    where Nyala runs from a checkout; where it is installed Spark finds it by itself.
    """
    chosen = getattr(builder, "_options", {})
    for name, value in _SETTINGS.items():
        if name not in chosen:
            builder.config(name, value)
    if str(chosen.get("spark.remote", chosen.get("spark.master", "local"))).startswith("local"):
        # By itself Spark takes the python3 on the path, which is another one in a virtual environment not activated.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _let_spark_find_the_package()
    return builder


def _let_spark_find_the_package() -> None:
    """Spark lists the folders of ``sys.path`` in a process that it starts; an editable install is in none of them."""
    face = find_spec("nyala")  # `pyspark_nyala` lies beside it
    assert face is not None and face.origin is not None
    home = str(Path(face.origin).parent.parent)
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if home not in (*site.getsitepackages(), site.getusersitepackages(), *given):
        os.environ["PYTHONPATH"] = os.pathsep.join([home, *filter(None, given)])
