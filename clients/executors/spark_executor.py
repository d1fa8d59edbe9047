"""SparkExecutor: Spark runs the tasks of a job, each in a Python worker that accesses stores and files itself."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ...schemas.errors import InvalidArgumentError, StoreError, UnavailableError, error_of
from .executor import results

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

Task = TypeVar("Task")
Result = TypeVar("Result")

_LOOK_SECONDS = 0.2


class SparkExecutor:
    """The executor "spark", which runs each task of a job as one Spark task: rows go between store and files without
    passing through the JVM.

    It needs a classic session: Spark Connect cannot run a function on tasks.
    """

    def __init__(self, spark: SparkSession | None = None, tasks_at_once: int | None = None) -> None:
        """With ``spark`` None, use the current session, or create one.

        Raises:
            InvalidArgumentError: pyspark is missing, or the session is one of Spark Connect.
        """
        self._context = _context(spark)
        self._width = tasks_at_once or self._context.defaultParallelism

    @property
    def width(self) -> int:
        """See Executor."""
        return self._width

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> list[Result]:
        """Return the result of each task, in the order of the tasks, so that it can also run a bulk import."""
        return results(self, function, tasks)

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], done: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, Result]]:
        """See Executor. Results come when all tasks have ended; until then ``done`` gets the finished count."""
        if not tasks:
            return
        for part in getattr(tasks[0], "__dict__", {}).values():
            if check := getattr(part, "check_portable", None):  # a link to a store
                check()
        job = _Job(self._context, function, tasks)
        job.wait(done)
        for index, (result, failure) in enumerate(job.outcomes):
            if failure is not None:
                raise error_of(*failure)
            yield index, result


class _Job:
    """One Spark job, run in its own thread, so that its progress can be watched."""

    def __init__(self, context: SparkContext, function: Callable[[Any], Any], tasks: Sequence[Any]) -> None:
        from pyspark import InheritableThread

        self._context = context
        self._group = f"nyala-{uuid.uuid4().hex}"
        self._rdd = context.parallelize(tasks, len(tasks)).map(lambda task: _outcome(function, task))
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self.outcomes: list[tuple[Any, tuple[str, str] | None]] = []
        self._thread = InheritableThread(self._collect)

    def wait(self, done: Callable[[int], None] | None) -> None:
        """Run the job; return when it has ended.

        Raises:
            UnavailableError: a task failed as often as Spark retries.
        """
        self._thread.start()
        try:
            while not self._ended.wait(_LOOK_SECONDS):
                if done:
                    done(self._tasks_ended())
        except BaseException:
            self._context.cancelJobGroup(self._group)
            raise
        self._thread.join()
        if self._error is not None:
            raise UnavailableError(f"a task failed on Spark: {_last_line(self._error)}") from self._error

    def _collect(self) -> None:
        try:
            self._context.setJobGroup(self._group, "a job of Nyala", interruptOnCancel=True)
            self.outcomes = self._rdd.collect()
        except Exception as error:  # raised again in the waiting thread
            self._error = error
        finally:
            self._ended.set()

    def _tasks_ended(self) -> int:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        return sum(stage.numCompletedTasks for stage in stages if stage)


def _outcome(function: Callable[[Any], Any], task: Any) -> tuple[Any, tuple[str, str] | None]:
    """Run a task on a worker. Return an error that no retry can cure, so that Spark does not retry it."""
    try:
        return function(task), None
    except UnavailableError:
        raise
    except StoreError as error:
        return None, (error.code, error.message)


def _context(spark: SparkSession | None) -> SparkContext:
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise InvalidArgumentError("the spark executor needs pyspark: pip install 'nyala[spark]'") from error
    if spark is None:
        from .spark_session import configure

        spark = configure(SparkSession.Builder().appName("nyala")).getOrCreate()
    try:
        return spark.sparkContext
    except Exception:  # Connect raises a class that classic Spark may lack
        raise InvalidArgumentError(
            "Spark Connect sessions are not supported: use a classic session, or executor='local'"
        ) from None


def _last_line(error: BaseException) -> str:
    """Return why a worker failed: the last line of its traceback, in the JVM's error message."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if "Error: " in line and not line.startswith(("org.", "py4j.", "at "))]
    return told[-1] if told else (lines or ["unknown"])[0]
