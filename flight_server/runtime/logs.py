"""The server's log on standard error: each record is a line of text or JSON. Never cell values, never requests."""

import json
import logging
import sys
import time
from collections import deque
from dataclasses import dataclass
from itertools import count

from ...schemas.protocol.request import identify


class JsonLines(logging.Formatter):
    """Formats the process's log as JSON: one object for each record; it includes the traceback, and the id of the
    request that the thread serves."""

    def __init__(self, server: str | None = None) -> None:
        super().__init__()
        self._server = server

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            **({"server": self._server} if self._server else {}),
            "logger": record.name,
            "message": record.getMessage(),
            **({"request": request_id} if (request_id := identify()()) else {}),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_stderr(level: str = "info", as_json: bool = False, server: str | None = None) -> None:
    """Log all parts of Nyala to standard error; ``server`` is its name, if it has one."""
    handler = logging.StreamHandler(sys.stderr)
    name = f"{server} " if server else ""
    text = logging.Formatter(f"%(asctime)s %(levelname)s {name}%(name)s: %(message)s")
    handler.setFormatter(JsonLines(server) if as_json else text)
    logger = logging.getLogger("nyala")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


@dataclass(frozen=True, slots=True)
class LogLine:
    """One record of the process's log."""

    number: int
    """Greater than that of all earlier ones."""
    seconds: float
    """When, since 1970."""
    level: int
    logger: str
    message: str
    traceback: str


class RecentLog(logging.Handler):
    """Keeps the last lines of the process's log in memory, each without the rest of a long text."""

    def __init__(self, lines_max: int = 500, length_max: int = 4000) -> None:
        super().__init__()
        self._kept: deque[LogLine] = deque(maxlen=lines_max)
        self._length_max = length_max
        self._numbers = count()
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler, which holds the lock of this one meanwhile."""
        try:
            error = record.exc_info
            traceback = self._formatter.formatException(error)[-self._length_max :] if error and error[0] else ""
            message = record.getMessage()[: self._length_max]
        except Exception:
            self.handleError(record)
            return
        self._kept.append(LogLine(next(self._numbers), record.created, record.levelno, record.name, message, traceback))

    def lines(self) -> list[LogLine]:
        """Return the lines, the oldest first."""
        return list(self._kept.copy())
