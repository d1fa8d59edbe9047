"""The options that all jobs take: the store, the executor, and the form of the result."""

from dataclasses import dataclass
from typing import Any

from .options import Runs, Workers
from .target import Target


@dataclass(frozen=True)
class JobOptions(Target):
    """The options of a command that runs a job."""

    executor: Runs = "local"
    workers: Workers = None

    @property
    def running(self) -> dict[str, Any]:
        """How the tasks run, as arguments of the functions in ``nyala.jobs``."""
        return {"executor": self.executor, "workers": self.workers, "show": "lines"}
