"""The package that users install: nothing forgotten or extra, and a client that stays light."""

import ast
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from release.build import unpack

ROOT = Path(__file__).parents[2]
PARTS = ("nyala", "pyspark_nyala", "schemas", "engine", "flight_server", "clients")
SHIM = "java"
"""A folder without Python: the sources of the shim for Spark, which are compiled where they are used."""
TOP = {"nyala", "pyspark_nyala"}
"""Installed under their own names; the other folders are parts of `nyala`."""
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]

# What the extras bring: none of it is there on a Spark executor that installed the client alone.
NOT_IN_THE_CLIENT = [
    "numba", "llvmlite", "numpy", "lz4", "zstandard",
    "pandas", "polars", "pyspark", "duckdb",
]  # fmt: skip
MORE_THAN_THE_CLIENT = ("sources", "spark", "spark_session.py", "spark_shim.py", "cluster", "offline_jobs")
BUILT = {
    "java/nyala-spark-shim-4.3.0.jar": b"a jar",
    "engine/kernels/ahead/libraries/aarch64-0123456789abcdef.kernels": b"kernels",
}
"""What a release compiles into the sources before it builds: the wheel takes it along."""
WITH_NUMPY = (
    "net_changes.py",
    "row_hash.py",
    "differences.py",
    "change_rows.py",
    "row_shapes.py",
    "change_order.py",
)


def python_files() -> list[Path]:
    return [file.relative_to(ROOT) for part in PARTS for file in sorted((ROOT / part).rglob("*.py"))]


def installed_path(file: Path) -> Path:
    """Where a file of the checkout is installed: engine/x.py as nyala/engine/x.py."""
    return file if file.parts[0] in TOP else Path("nyala") / file


def dotted(folder: Path) -> str:
    return ".".join(folder.parts)


def run(code: str, folder: Path) -> str:
    """Run ``code`` in a fresh interpreter, away from the checkout, and return what it prints. A test that configures
    Spark in this process may have put the checkout into PYTHONPATH."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_package_is_listed() -> None:
    have = {dotted(installed_path(file).parent) for file in python_files()}
    assert set(SETUPTOOLS["packages"]) == have | {f"nyala.{SHIM}"}


def test_every_package_has_an_init() -> None:
    folders = {file.parent for file in python_files()}
    assert [folder for folder in folders if not (ROOT / folder / "__init__.py").exists()] == []


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with all that a release compiles, so that no build folder is left in the checkout."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for part in (*PARTS, SHIM):
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__", "*.jar", "*.kernels"))
    for name, content in BUILT.items():
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_bytes(content)
    return copy


def build(kind: str, checkout: Path) -> Path:
    """Build a wheel or an sdist."""
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}('dist'))"
    return checkout / "dist" / run(code, checkout).splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    return build("wheel", checkout)


@pytest.fixture(scope="module")
def sdist(checkout: Path) -> Path:
    return build("sdist", checkout)


def test_wheel_holds_the_code_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    code = {name for name in names if ".dist-info/" not in name}
    modules = {installed_path(file).as_posix() for file in python_files()}
    typed = {installed_path(Path(part) / "py.typed").as_posix() for part in PARTS}
    sources = {f"nyala/{name}" for name in shim_sources()}
    assert sources and code == modules | typed | sources | {f"nyala/{name}" for name in BUILT}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def shim_sources() -> set[str]:
    return {file.relative_to(ROOT).as_posix() for file in (ROOT / SHIM).glob("src/**/*.j*")}


def test_wheel_brings_the_jars_and_kernels_that_a_release_compiles(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert {name: archive.read(f"nyala/{name}") for name in BUILT} == BUILT


def test_sdist_has_all_that_a_wheel_is_built_of(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        unpack(archive, tmp_path)
    (unpacked,) = tmp_path.iterdir()
    files = {file.relative_to(unpacked).as_posix() for file in unpacked.rglob("*") if file.is_file()}
    code = {name for name in files if "/" in name and "egg-info/" not in name}
    modules = {file.as_posix() for file in python_files()} | {f"{part}/py.typed" for part in PARTS}
    assert code == modules | shim_sources() | BUILT.keys()
    assert {"README.md", "LICENSE", "pyproject.toml"} <= files
    again = zipfile.ZipFile(build("wheel", unpacked)).namelist()
    assert sorted(again) == sorted(zipfile.ZipFile(wheel).namelist())


def test_metadata_has_addresses_and_no_developer_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().partition("\n\n")[0].splitlines()
    urls = {line.partition(": ")[2].partition(",")[0] for line in lines if line.startswith("Project-URL: ")}
    assert urls == {"Homepage", "Documentation", "Source", "Changelog", "Issues"}
    assert not [line for line in lines if "pytest" in line or line in ("Provides-Extra: dev", "Provides-Extra: bench")]
    assert "Classifier: Typing :: Typed" in lines and "License-Expression: Apache-2.0" in lines


def test_wheel_imports_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import nyala, nyala.clients, nyala.schemas\n"
        "print(nyala.__file__, nyala.clients.__file__, nyala.schemas.__file__)"
    )
    assert all(place.startswith(str(tmp_path)) for place in run(code, tmp_path).split())


@pytest.mark.parametrize("module", ["nyala", "nyala.clients", "nyala.schemas"])
def test_import_stays_cheap(module: str, tmp_path: Path) -> None:
    heavy = ["numba", "llvmlite", "pandas", "polars", "pyspark", "nyala.engine"]
    code = f"import sys, {module}\nprint([name for name in {heavy} if name in sys.modules])"
    assert run(code, tmp_path) == "[]"


def client_modules() -> list[str]:
    """Every module a client may load, without those that need Spark, or numpy: checksums and several servers."""
    return [
        dotted(installed_path(file).with_suffix("")).removesuffix(".__init__")
        for file in python_files()
        if file.parts[0] in ("schemas", "clients") and not {*MORE_THAN_THE_CLIENT, *WITH_NUMPY} & set(file.parts)
    ]


def test_client_loads_where_only_the_client_is_installed(tmp_path: Path) -> None:
    code = (
        "import sys, importlib\n"
        f"sys.modules.update(dict.fromkeys({NOT_IN_THE_CLIENT}))\n"  # None: the import fails
        f"for name in {client_modules()}: importlib.import_module(name)\n"
        "print('nyala.engine' in sys.modules)"
    )
    assert run(code, tmp_path) == "False"


def test_command_shows_help_without_the_engine(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from nyala.__main__ import main\n"
        "sys.argv = ['nyala', '--help']\n"
        "try: main()\n"
        "except SystemExit as exit: assert not exit.code, exit.code\n"
        "print([name for name in ('numba', 'nyala.engine') if name in sys.modules])"
    )
    assert run(code, tmp_path).splitlines()[-1] == "[]"


def bare_imports(file: Path) -> list[str]:
    """Return the imports in a file that name a folder of ours without ``nyala.``."""
    tree = ast.parse((ROOT / file).read_text())
    names = [
        (node.lineno, name)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.level == 0)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    ]
    ours = set(PARTS) - TOP
    return [f"{file}:{line} imports {name}" for line, name in names if name.split(".")[0] in ours]


def test_nobody_imports_a_folder_by_its_bare_name() -> None:
    """``import schemas`` works by accident in the checkout, and makes second copies of classes."""
    folders = (*PARTS, "tests", "bench", "examples")
    files = [file.relative_to(ROOT) for top in folders for file in (ROOT / top).rglob("*.py")]
    assert [line for file in files for line in bare_imports(file)] == []
    assert not (set(PARTS) - TOP) & sys.modules.keys()


def test_bare_folders_are_not_installed(tmp_path: Path) -> None:
    code = "import importlib.util as u; print([n for n in {parts} if u.find_spec(n)])"
    parts = [part for part in PARTS if part not in TOP]
    assert run(code.format(parts=parts), tmp_path) == "[]"
