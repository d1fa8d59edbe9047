"""The server's log on standard error: each record is a line of text or JSON. Never cell values, never requests."""

import json
import logging
import sys
import time

from ..schemas.request import identify


class JsonLines(logging.Formatter):
    """One JSON object for each record; it includes the traceback, and the id of the request that the thread serves."""

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
