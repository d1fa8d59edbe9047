#!/usr/bin/env bash
# All tests:  .ci/test.sh WORKERS [arguments of pytest]
# First those without Spark, on all processors; then those with it, in one process: each would start a Java machine.
# In continuous integration a test that failed runs once more, alone; both results are printed at the end. One that then
# passes depends on time or load: it does not stop the run, and has to be mended all the same.
set -uo pipefail
cd "$(dirname "$0")/.."
workers=$1
shift
none=5 # what pytest ends with when nothing was to be run
few=10 # more failures than this are no accident
status=$none
again=""

run() {
    local code=0 failed
    .venv/bin/python -m pytest -q --durations=15 --durations-min=5 "$@" || code=$?
    if [ "$code" -eq 1 ] && [ -n "${CI:-}" ]; then
        failed=$(sed -nE 's/^  "(.*)": true,?$/\1/p' .pytest_cache/v/cache/lastfailed)
        if [ "$(wc -l <<<"$failed")" -le "$few" ]; then
            code=0
            .venv/bin/python -m pytest -q --last-failed "$@" -n 0 || code=$?
            again+="failed, then run again alone (pytest ended with $code):"$'\n'"$failed"$'\n'
        fi
    fi
    if [ "$code" -ne "$none" ] && { [ "$status" -eq "$none" ] || [ "$status" -eq 0 ]; }; then status=$code; fi
}

run -n "$workers" --dist worksteal -m "not spark" "$@"
if .ci/java.sh javac || .ci/java.sh || [ -n "${CI:-}" ]; then
    [ $# -gt 0 ] || set -- tests/spark tests/test_docs.py
    run -m spark "$@"
else
    echo "the tests with Spark are left out"
fi
printf '%s' "$again"
exit "$status"
