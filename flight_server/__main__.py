"""``python -m nyala.flight_server``: the ``serve`` command alone, for containers and service managers."""

import typer

from ..clients.cli.run import run
from .commands.serve_command import serve

if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(serve)
    run(app)
