"""Every N-th call of a bucket fails, or is the last: success or a named error, and what was acknowledged is there.

Here some of the calls; ``make bucket-faults`` takes all of them in a random order.
"""

from __future__ import annotations

import pytest

from tests.dose import dose
from tests.engine.home.bucket_faults import KINDS, trial
from tests.engine.home.bucket_workloads import WORKLOADS, calls

STEP = dose(97, 37)
"""Of the calls of a workload, one in so many fails; each kind begins at another one."""


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("kind", KINDS)
def test_any_call_may_fail(workload: str, kind: str) -> None:
    count = calls(workload)
    assert count > 60
    for number in range(1 + 7 * KINDS.index(kind) % STEP, count + 1, STEP):
        trial(workload, kind, number)
