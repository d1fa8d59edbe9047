"""The write locks of a table's tablets: whoever is interrupted leaves none of them behind."""

from __future__ import annotations

import signal
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from nyala.engine.table import table_version
from nyala.engine.table.table_version import write_locks
from nyala.engine.tablet.tablet import Tablet
from tests.engine.subject import Subject


@pytest.mark.parametrize("count", [1, 3])
def test_ctrl_c_leaves_no_lock_behind(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """It may come when a lock is taken, and not noted yet."""
    signals = iter([signal.SIGINT])

    class Interrupted(ExitStack):
        def enter_context(self, cm: Any) -> Any:
            entered = cm.__enter__()
            for number in signals:
                signal.raise_signal(number)
            self.push(cm)
            return entered

    subject = Subject()
    tablets = [Tablet(number, subject.tablet.schema) for number in range(10, 10 + count)]
    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr(table_version, "ExitStack", Interrupted)
        with write_locks(tablets):
            assert all(tablet.write_lock.locked() for tablet in tablets)
    assert not any(tablet.write_lock.locked() for tablet in tablets)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    subject.store.close()
