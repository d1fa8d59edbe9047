"""What all jobs take on the command line: the store, who runs the tasks, and the form of the answer."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import typer

from .options import Runs, Workers
from .target import Data, Json, Url, database

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ..api.database import Database

Command = Callable[..., None]


@dataclass(frozen=True)
class JobOptions:
    """The options of one call. The fields are the parameters of every command that takes it."""

    context: typer.Context
    executor: Runs = "local"
    workers: Workers = None
    url: Url = None
    data: Data = None
    json_output: Json = False

    def database(self, create: bool = False) -> "Database":
        """Return the database that ``--url`` or ``--data`` names. Raises as ``target.database``."""
        return database(self.context, self.url, self.data, create)

    @property
    def running(self) -> dict[str, Any]:
        """How the tasks run, as the functions of jobs take it."""
        return {"executor": self.executor, "workers": self.workers, "show": "lines"}

    def prints_json(self, result: "BaseModel") -> bool:
        """Print what a job answers as JSON, if ``--json`` asks for that; return whether it does."""
        if self.json_output:
            from .output import print_json

            print_json(result.model_dump(mode="json"))
        return self.json_output


def takes_job_options(*without: str) -> Callable[[Command], Command]:
    """Make a command of a function whose first parameter is ``JobOptions``: the options follow the function's own.

    ``without`` names those that the command does not have.
    """

    def decorate(command: Command) -> Command:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        context, *shared = inspect.signature(JobOptions, eval_str=True).parameters.values()
        taken = [parameter for parameter in shared if parameter.name not in without]

        @wraps(command)
        def called(**given: Any) -> None:
            options = {each.name: given.pop(each.name) for each in (context, *taken)}
            command(JobOptions(**options), **given)

        called.__signature__ = inspect.Signature([context, *own, *taken])  # pyright: ignore[reportAttributeAccessIssue]
        return called

    return decorate
