"""The jar of the shim: built, found, and refused where it does not fit; no Java machine is started."""

from __future__ import annotations

import os
import shutil
import warnings
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from nyala.clients.api.database import Database
from nyala.clients.executors import spark_shim as shim
from nyala.clients.spark.source import NyalaDataSource
from nyala.schemas.errors import InvalidArgumentError
from nyala.spark import configure


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take back what `configure` says to the processes that Spark will start."""
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))


def fake_jar(folder: Path, version: str | None = None, digest: str | None = None) -> Path:
    """Return a jar without classes that says what it was made from; by default that it fits."""
    jar = folder / "shim.jar"
    shim._write_jar(jar, {}, version or shim.spark_version())
    if digest is not None:
        with zipfile.ZipFile(jar) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(jar, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content.replace(shim._digest().encode(), digest.encode()))
    return jar


def settings(**arguments: object) -> dict[str, str]:
    """What a builder is told."""
    builder = SparkSession.Builder().master("local[1]").config("spark.jars", "other.jar")
    return dict(configure(builder, **arguments)._options)  # pyright: ignore[reportArgumentType]


def test_a_jar_that_fits_is_used(tmp_path: Path) -> None:
    jar = fake_jar(tmp_path)
    found = settings(shim=jar, uri="grpc://a:1")
    assert found["spark.jars"] == f"other.jar,{jar}"
    assert found["spark.sql.catalog.nyala"] == shim.CATALOG and found["spark.sql.catalog.nyala.uri"] == "grpc://a:1"
    plain = settings(shim=False)
    assert plain["spark.jars"] == "other.jar" and not any("catalog" in name for name in plain)


def test_what_was_set_before_stays() -> None:
    name = "spark.sql.execution.arrow.maxBytesPerBatch"
    assert settings(shim=False)[name] == str((1 << 31) - 1)
    builder = SparkSession.Builder().master("local[1]").config(name, "1048576")
    assert dict(configure(builder, shim=False)._options)[name] == "1048576"  # pyright: ignore[reportArgumentType]


UNFIT = {
    "of another Spark": ({"version": "4.3.1"}, "compiled against Spark 4.3.1, but this is Spark 4.3.0"),
    "of other sources": ({"digest": "0" * 40}, "from the sources of another version"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_jar_that_does_not_fit_is_left_out_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    what, why = UNFIT[case]
    jar = fake_jar(tmp_path, **what)
    monkeypatch.setattr("nyala.clients.executors.spark_session.default_jar", lambda: jar)
    with pytest.warns(RuntimeWarning, match=why):
        assert "spark.sql.catalog.nyala" not in settings()
    with pytest.raises(InvalidArgumentError, match=why):
        settings(shim=jar)


def test_without_a_jar_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nyala.clients.executors.spark_session.default_jar", lambda: tmp_path / "none.jar")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert settings()["spark.jars"] == "other.jar"
    with pytest.raises(InvalidArgumentError, match="build it with `nyala spark build-shim`"):
        settings(shim=True)


def test_the_jar_of_the_running_spark_is_the_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim, "_FOLDER", tmp_path)
    mine, other = (tmp_path / f"nyala-spark-shim-{version}.jar" for version in (shim.spark_version(), "4.3.9"))
    assert shim.default_jar() == mine, "there is none: this name is looked for"
    other.touch()
    assert shim.default_jar() == other, "an update of Spark is seen, and said"
    mine.touch()
    assert shim.default_jar() == mine
    monkeypatch.setattr(shim, "spark_version", lambda: "4.2.1")
    assert not shim.default_jar().exists(), "no jar is for this Spark: nothing is said"


def test_a_file_that_is_no_jar(tmp_path: Path) -> None:
    (tmp_path / "x.jar").write_bytes(b"nothing")
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        settings(shim=tmp_path / "x.jar")


def test_building_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidArgumentError, match="javac not found: install a JDK 17"):
        shim.build_shim(tmp_path)
    monkeypatch.setattr(shim, "spark_version", lambda: "5.0.0")
    with pytest.raises(InvalidArgumentError, match=r"needs Spark 4\.3; this is 5\.0\.0"):
        shim.build_shim(tmp_path)


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    javac = tmp_path / "bin" / "javac"
    javac.parent.mkdir()
    javac.write_text(f"#!{shutil.which('sh')}\necho 'error: no such class' >&2\nexit 1\n")
    javac.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidArgumentError, match="no such class"):
        shim.build_shim(tmp_path)


def test_an_aggregate_is_one_row(db: Database, uri: str) -> None:
    homes = db.create_table("homes", pa.schema({"id": pa.int64(), "price": pa.decimal128(9, 2)}), ["id"])
    homes.insert({"id": [1, 2, 3], "price": [1, 2, None]})
    asked = '{"n": ["*", "count"], "total": ["price", "sum"], "most": ["price", "max"]}'
    source = NyalaDataSource({"uri": uri, "table": "homes", "filter": "id < 9", "aggregate": asked})
    assert source.schema().simpleString() == "struct<n:bigint,total:decimal(38,2),most:decimal(9,2)>"
    reader = source.reader(schema=source.schema())
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert [tuple(map(int, row.values())) for row in rows] == [(3, 3, 2)]
    with pytest.raises(InvalidArgumentError, match="aggregate cannot be combined with columns"):
        NyalaDataSource({"uri": uri, "table": "homes", "columns": "id", "aggregate": asked}).schema()


def test_editors_are_given_the_jars_of_the_spark_that_the_shim_is_built_for() -> None:
    project = ElementTree.parse(shim._FOLDER / "pom.xml")
    assert project.findtext(".//{*}spark.version") == shim.spark_version()
