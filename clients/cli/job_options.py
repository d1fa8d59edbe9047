"""The options that all jobs take: the store, the executor, and the form of the result."""

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
    """The options of one call. Each field is a parameter of every command that takes them."""

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
        """How the tasks run, as arguments of the functions in ``nyala.jobs``."""
        return {"executor": self.executor, "workers": self.workers, "show": "lines"}

    def prints_json(self, result: "BaseModel") -> bool:
        """Print the result of a job as JSON, if ``--json`` is given; return whether it is."""
        if self.json_output:
            from .output import print_json

            print_json(result.model_dump(mode="json"))
        return self.json_output


def takes_job_options(*without: str) -> Callable[[Command], Command]:
    """Turn a function whose first parameter is ``JobOptions`` into a command: these options follow the function's own.

    ``without`` names the options that the command lacks.
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
