"""Whether an error says something of the disk, or only that a signal came."""

from __future__ import annotations

from .. import threads


def is_interruption(error: BaseException) -> bool:
    """Whether an error of the log's writer comes from a signal's handler, not from the disk: these run in the main
    thread only.

    An error of the disk that a handler met is its context. Another error is taken for one too; it will be met again.
    """
    is_a_handlers = isinstance(error, Exception | KeyboardInterrupt | SystemExit)
    if not is_a_handlers or threads.current_thread() is not threads.main_thread():
        return False
    met: BaseException | None = error
    while met is not None and not isinstance(met, OSError):
        met = met.__context__
    return met is None
