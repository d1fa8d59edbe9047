"""``nyala spark``: what Spark needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Prepare Spark for Nyala tables.")


@app.callback()
def spark() -> None:
    """Keeps the command under its own name, though it is the only one."""


@app.command("build-shim")
def build_shim_command(
    folder: Annotated[
        Path | None, typer.Option(help="The folder for the jar.", show_default="where `configure` looks for it")
    ] = None,
) -> None:
    """Compile the Java shim, which gives Spark column pruning, filter pushdown and a catalog. Needs JDK 17."""
    from ..executors.spark_shim import build_shim, spark_version

    print(f"{build_shim(folder)}, for Spark {spark_version()}")
