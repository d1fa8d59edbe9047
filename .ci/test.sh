#!/usr/bin/env bash
# All tests:  .ci/test.sh WORKERS [arguments of pytest]
# Those without Spark run on all processors (WORKERS auto: in one process more than there are). Those with Spark run
# beside them in two processes, each with a Java machine of its own; their output comes last.
# Tests marked `night` run only with NIGHT=1, and then doses are the long ones (tests/dose.py).
# By day costly tests take turns (tests/turns.py): the commit chooses, or TURN=2. All run where tests are named, with
# TURN= and by night.
# In continuous integration a test that failed runs once more, alone, and both results are printed. A test that then
# passes depends on time or load: it does not fail the run, but it needs mending all the same.
set -uo pipefail
cd "$(dirname "$0")/.."
# The tests start some hundred processes, each of which would compile the sources anew, and each worker all tests.
unset PYTHONDONTWRITEBYTECODE
workers=$1
shift
# The tests wait for a fifth of their time: for leases, clocks and processes. One worker more has work meanwhile.
[ "$workers" != auto ] || workers=$(($(nproc) + 1))
none=5 # pytest's exit code when no test was selected
by_day=""
[ -n "${NIGHT:-}" ] || by_day=" and not night"
if [ $# -eq 0 ] && [ -z "${NIGHT:-}" ]; then
    : "${TURN=$((16#$(git rev-parse --short=6 HEAD 2>/dev/null || date +%y%m%d) % 10))}"
    [ -z "$TURN" ] || echo "turn $TURN of the costly tests"
    export TURN
else
    unset TURN
fi
limits=() # a long dose beside other work takes longer than a test may by day
[ -z "${NIGHT:-}" ] || limits=(-o timeout=1200)
few=10 # more failures than this are no accident
# Tests with Spark wait for Java and for servers, and would outlast the others by far in one process. A file goes to one
# of two: tests of some files share rows that take long to make.
sessions=(-n 2 --dist loadfile --no-loadscope-reorder)
case $workers in 0 | 1) sessions=(-n 0) ;; esac

# run NAME [arguments of pytest]
run() {
    local cache=.pytest_cache/$1 code=0 failed
    shift
    .venv/bin/python -m pytest -q --durations=50 --durations-min=1 -o cache_dir="$cache" "${limits[@]}" "$@" || code=$?
    if [ "$code" -eq 1 ] && [ -n "${CI:-}" ]; then
        failed=$(sed -nE 's/^  "(.*)": true,?$/\1/p' "$cache/v/cache/lastfailed")
        if [ "$(wc -l <<<"$failed")" -le "$few" ]; then
            code=0
            env -u TURN .venv/bin/python -m pytest -q --last-failed -o cache_dir="$cache" "${limits[@]}" "$@" -n 0 || code=$?
            printf 'failed, then run again alone (pytest ended with %s):\n%s\n' "$code" "$failed"
        fi
    fi
    return "$code"
}

with_spark() {
    if .ci/java.sh javac || .ci/java.sh || [ -n "${CI:-}" ]; then
        [ $# -gt 0 ] || set -- tests/clients/spark tests/house/test_docs.py
        run spark "${sessions[@]}" -m "spark$by_day" "$@"
    else
        echo "the tests with Spark are left out"
        return "$none"
    fi
}

.ci/postgres.sh || echo "the tests of mirrors are left out"
output=$(mktemp)
with_spark "$@" >"$output" 2>&1 &
spark=$!
trap 'rm -f "$output"; kill "$spark" 2>/dev/null' EXIT
spark_code=0
if [ "$workers" = 0 ]; then wait "$spark" || spark_code=$?; fi # one after the other
plain_code=0
run plain -n "$workers" --dist worksteal -m "not spark$by_day" "$@" || plain_code=$?
wait "$spark" || spark_code=$?
cat "$output"
if [ "$plain_code" -ne 0 ] && [ "$plain_code" -ne "$none" ]; then exit "$plain_code"; fi
if [ "$spark_code" -ne 0 ] && [ "$spark_code" -ne "$none" ]; then exit "$spark_code"; fi
if [ "$plain_code" -eq "$none" ]; then exit "$spark_code"; fi
exit 0
