#!/usr/bin/env bash
# All tests:  .ci/test.sh WORKERS [arguments of pytest]
# First those without Spark, on all processors; then those with it, in one process: each would start a Java machine.
set -uo pipefail
cd "$(dirname "$0")/.."
workers=$1
shift
none=5 # what pytest ends with when nothing was to be run
status=$none

run() {
    local code=0
    .venv/bin/python -m pytest -q --durations=15 --durations-min=5 "$@" || code=$?
    if [ "$code" -ne "$none" ] && { [ "$status" -eq "$none" ] || [ "$status" -eq 0 ]; }; then status=$code; fi
}

run -n "$workers" --dist worksteal -m "not spark" "$@"
if .ci/java.sh javac || .ci/java.sh || [ -n "${CI:-}" ]; then
    [ $# -gt 0 ] || set -- tests/spark tests/test_docs.py
    run -m spark "$@"
else
    echo "the tests with Spark are left out"
fi
exit "$status"
