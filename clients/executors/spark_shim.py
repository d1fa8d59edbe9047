"""The optional Java shim (``java/``): compiled against the installed Spark, and used with no other.

Releases bring jars, one for each Spark in ``SHIPPED``. Compiling another needs only ``javac``. Without the shim
everything works, but Spark prunes no columns, pushes no filters and has no catalog of tables.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from ...schemas.errors import InvalidArgumentError

CATALOG = "io.nyala.spark.NyalaCatalog"
EXTENSIONS = "io.nyala.spark.NyalaExtensions"
SHIPPED = ("4.3.0",)
"""The versions of Spark that a release has jars for."""
_SERIES = "4.3"
"""The Spark version whose internal classes the shim uses."""
_FOLDER = Path(__file__).parents[2] / "java"  # in a checkout and in an installed package
_SOURCES = _FOLDER / "src/main/java"
_RESOURCES = _FOLDER / "src/main/resources"
_MANIFEST = "META-INF/MANIFEST.MF"
_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_VERSION = "Implementation-Version"
"""The manifest attribute for the Spark version, with its standard Java name."""
_OLDEST = (1980, 1, 1, 0, 0, 0)


def jar_name(version: str) -> str:
    """Return the name of the Java shim's jar for a version of Spark."""
    return f"nyala-spark-shim-{version}.jar"


def default_jar() -> Path:
    """Return where ``configure`` looks for the Java shim of a Spark session: the jar for this Spark, or, where only
    others of its series are, one of these, so that ``why_not`` can name the difference."""
    version = spark_version()
    jar = _FOLDER / jar_name(version)
    if jar.exists() or not _is_in_series(version):
        return jar
    return max(_FOLDER.glob(jar_name(f"{_SERIES}.*")), default=jar)


def build_shim(folder: Path | None = None) -> Path:
    """Compile the Java shim of a Spark session with ``javac`` and return its jar, written into the folder of its
    sources or into ``folder``.

    Raises:
        InvalidArgumentError: there is no JDK, Spark has another version, or the folder is not writable.
    """
    version = spark_version()
    jar = (folder or _FOLDER) / jar_name(version)
    if not _is_in_series(version):
        raise InvalidArgumentError(f"the Java shim needs Spark {_SERIES}; this is {version}")
    with tempfile.TemporaryDirectory() as scratch:
        _compile(Path(scratch))
        files = _files(Path(scratch), "*.class") | _files(_RESOURCES, "*.json")
    try:
        jar.parent.mkdir(parents=True, exist_ok=True)
        _write_jar(jar, files, version)
    except OSError as error:
        raise InvalidArgumentError(
            f"the jar cannot be written to {jar.parent} ({error.strerror}): use another folder and pass the jar to "
            "configure(builder, shim=...)"
        ) from None
    return jar


def why_not(jar: Path) -> str | None:
    """Return why the jar of a Java shim cannot be used with the Spark that a session would start; None if it can."""
    try:
        with zipfile.ZipFile(jar) as archive:
            said = dict(line.split(": ", 1) for line in archive.read(_MANIFEST).decode().split("\r\n") if line)
    except (OSError, zipfile.BadZipFile, KeyError, ValueError) as error:
        return f"{jar} cannot be read ({error})"
    built_for, running = said.get(_VERSION), spark_version()
    if built_for != running:
        return f"it was compiled against Spark {built_for}, but this is Spark {running}"
    if said.get("Source-Digest") != _digest():
        return "it was compiled from the sources of another version of nyala"
    return None


def spark_version() -> str:
    """Return the version of the Spark that a session would start: from ``SPARK_HOME``, or from pyspark."""
    found = next(_spark_jars().glob("spark-sql_*.jar"), None)
    matched = re.fullmatch(r"spark-sql_[\d.]+-(.+)\.jar", found.name) if found else None
    return matched[1] if matched else "unknown"


def _is_in_series(version: str) -> bool:
    return version.startswith(_SERIES + ".")


def _spark_jars() -> Path:
    return Path(_find_spark_home()) / "jars"


def _compile(target: Path) -> None:
    javac = _javac()
    arguments = ["--release", "17", "-proc:none", "-nowarn", "-classpath", f"{_spark_jars()}/*", "-d", str(target)]
    sources = sorted(map(str, _SOURCES.rglob("*.java")))
    done = subprocess.run([javac, *arguments, *sources], capture_output=True, text=True)
    if done.returncode:
        raise InvalidArgumentError(f"javac failed:\n{done.stderr.strip()}")


def _javac() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("javac", path=f"{home}/bin") if home else None
    found = found or shutil.which("javac")
    if found is None:
        raise InvalidArgumentError(
            "javac not found: install a JDK 17 or later, such as openjdk-17-jdk-headless on Debian"
        )
    return found


def _files(folder: Path, pattern: str) -> dict[str, bytes]:
    """Return the files below a folder, by their path in it."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob(pattern))}


def _digest() -> str:
    told = hashlib.sha256()
    for name, content in (_files(_SOURCES, "*.java") | _files(_RESOURCES, "*.json")).items():
        told.update(name.encode() + b"\0" + content)
    return told.hexdigest()[:40]  # a manifest line has at most 72 bytes


def _write_jar(jar: Path, classes: dict[str, bytes], version: str) -> None:
    """Write the jar atomically and reproducibly."""
    manifest = f"Manifest-Version: 1.0\r\n{_VERSION}: {version}\r\nSource-Digest: {_digest()}\r\n\r\n"
    files = {_MANIFEST: manifest.encode(), _SERVICE: b"io.nyala.spark.NyalaProvider\n"} | dict(sorted(classes.items()))
    part = jar.with_name(f"{jar.name}.{os.getpid()}")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _OLDEST), content, zipfile.ZIP_DEFLATED)
    part.replace(jar)
