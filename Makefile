# Every target makes .venv by itself, and again when pyproject.toml changes; python3 is all that is assumed.
SHELL := /bin/bash
BIN := .venv/bin

MINUTES ?= 5
CYCLES ?= 200
COUNT ?= 5000
SEED ?= 0
SECONDS ?= 60
SCAN_SECONDS ?= 8
ROUNDS ?= 10
MEMORY_MB ?= 512
RESTARTS ?= 100
FLIPS ?= 300
ROWS ?= 10000000
WORKERS ?= auto
ARGS ?=
OPTIONS ?=
GIVEN = $(if $(OPTIONS),--options "$(OPTIONS)")

.DEFAULT_GOAL := help
.PHONY: help demo demo-spark shim test integrations night lint format wheel release aarch64 docs bench console counters fuzz fuzz-bytes slots-model bucket-faults failover ceph kill9 stops full-disk filters race live isolation nested simulate decay leases moves jobs pairs attack soak churn versions mirror kafka streaming kills stalled clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: .venv/.installed-dev  ## a store, a server and a client on real flight data: a minute, the first time about three
	@$(BIN)/nyala demo $(ARGS)

demo-spark: .venv/.installed-dev  ## a pipeline on Spark: join, load, correct by a stream, back up, restore; installs Java on Debian
	@.ci/java.sh
	@$(BIN)/python examples/spark_pipeline.py

shim: .venv/.installed-dev  ## compile the shim in Java that makes Spark prune columns and push filters; installs a JDK on Debian
	@.ci/java.sh javac
	@$(BIN)/nyala spark build-shim

test: .venv/.installed-dev  ## all tests, on all processors; Spark's need Java 17 (ARGS="tests/engine -k wal" for some, WORKERS=0 for one after the other)
	@.ci/test.sh $(WORKERS) $(ARGS)

integrations: .venv/.installed-dev  ## test dbt and dlt on a server, in an environment of its own (integrations/.venv)
	@$(BIN)/python -m pytest -q -n 0 tests/clients/integrations

integrations/.venv/.installed: $(shell find integrations -path integrations/.venv -prune -o -type f -print)
	@echo "installing dbt and dlt into integrations/.venv"
	@python3 -m venv integrations/.venv
	@integrations/.venv/bin/pip install --quiet --disable-pip-version-check -e . ./integrations/dbt ./integrations/dlt
	@rm -rf integrations/*/build
	@touch $@

night: .venv/.installed-bench  ## the long doses, for one night: all tests, and every campaign in turn, with a new seed (SEED=7 ONLY="fuzz race" SHARE=0.1)
	@$(BIN)/python tests/night.py $(if $(filter-out file,$(origin SEED)),--seed $(SEED)) $(if $(SHARE),--share $(SHARE)) $(if $(ONLY),--only $(ONLY))

lint: .venv/.installed-dev  ## style, types and the floors of the house
	@.ci/lint.sh

format: .venv/.installed-dev  ## rewrite the code in the one format
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format .

wheel: .venv/.installed-dev  ## build the wheel, with the kernels compiled for x86-64 (four levels) and 64-bit Arm: some minutes
	@$(BIN)/python -m nyala.engine.kernels.compile.making
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

release: .venv/.installed-release  ## build sdist, wheels, checksums and SBOM from the last commit into dist/, and try each: a quarter of an hour; installs a JDK and an emulator on Debian
	@.ci/java.sh javac
	@PYTHONPATH=.ci $(BIN)/python -m release $(ARGS)

aarch64: .venv/.installed-dev  ## run tests of kernels on an emulated 64-bit Arm; installs qemu on Debian (ARGS="tests/engine/codecs")
	@.ci/aarch64.sh $(ARGS)

lock:  ## write which versions the image installs, with hashes; needs the image's Python (ARGS=--upgrade for the newest)
	@deploy/lock.sh $(ARGS)

image: WORK ?= /var/tmp/nyala-replay
image: .venv/.installed-dev  ## replay the Dockerfile and docker-compose.yml without a container engine; as root, on Debian
	@command -v debootstrap >/dev/null || apt-get install -y -qq --no-install-recommends debootstrap
	@$(BIN)/python tests/campaigns/image/replay.py --work $(WORK)

docs: .venv/.installed-docs  ## build the documentation site with the API reference, its links checked, in build/docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict && echo "build/docs/index.html"

bench: .venv/.installed-bench  ## measure, and write bench/README.md (ROWS=1000000 for a short run)
	@$(BIN)/python -m bench --rows $(ROWS) $(ARGS)

console: .venv/.installed-dev  ## how long each page of the console takes, the median of five (TABLETS=1000)
	@$(BIN)/python -m bench.console --tablets $(or $(TABLETS),1000)

counters: .venv/.installed-dev  ## count what fourteen operations cost (functions, pages, allocations, disk), and record it
	@$(BIN)/python tests/campaigns/counters/record.py

fuzz: .venv/.installed-dev  ## random operations against a model (MINUTES=5 SEED=0 OPTIONS='flush_bytes=400 encryption=on', as every campaign that draws options)
	@$(BIN)/python tests/campaigns/model/fuzz.py --minutes $(MINUTES) --seed $(SEED) $(GIVEN)

fuzz-bytes: .venv/.installed-fuzz  ## malformed bytes for each decoder, by atheris (SECONDS=600 for each of nine, SEED=0, ONLY=codecs)
	@$(BIN)/python tests/campaigns/corruption/fuzz_bytes.py --seconds $(or $(filter-out 60,$(SECONDS)),600) --seed $(SEED) $(if $(ONLY),--only $(ONLY))

filters: .venv/.installed-dev  ## random filters, expressions and aggregates beside DuckDB (COUNT=5000 SEED=0)
	@$(BIN)/python tests/engine/filter/campaign.py --count $(COUNT) --seed $(SEED)

slots-model: .venv/.installed-dev  ## every order of events of the log of slots in a bucket, and of moves (SIZES=study or larger; ONLY="three processes")
	@$(BIN)/python tests/campaigns/model_slots/campaign.py --sizes $(or $(SIZES),study) $(if $(ONLY),--only "$(ONLY)")

bucket-faults: .venv/.installed-dev  ## every fault at every call of a store in a bucket, in a random order (MINUTES=5 SEED=0; all take some 40)
	@$(BIN)/python tests/engine/home/bucket_faults_campaign.py --minutes $(MINUTES) --seed $(SEED)

failover: MINUTES = 10
failover: .venv/.installed-dev  ## servers of a store in a bucket fail in every way under load (MINUTES=10 SEED=0 WAY=directory or moto LEASE=5 ONLY=kill)
	@$(BIN)/python tests/campaigns/failover/campaign.py --minutes $(MINUTES) --seed $(SEED) --way $(or $(WAY),directory) --lease $(or $(LEASE),5) $(if $(ONLY),--only $(ONLY)) $(GIVEN)

ceph: MINUTES = 10
ceph: .venv/.installed-dev  ## the same over a Ceph with two gateways, whose OSD is killed, out of Debian's packages (MINUTES=10 SEED=0 LEASE=5)
	@$(BIN)/python tests/campaigns/failover/campaign.py --minutes $(MINUTES) --seed $(SEED) --way ceph --lease $(or $(LEASE),5) $(GIVEN)

kill9: .venv/.installed-dev  ## kill -9 a loaded server and look for lost rows (CYCLES=200 SEED=0; WAY=retries, scans, sessions: clients live on; WAY=embedded: without a server; WAY=orders: changes in random orders; WAY=openings: how long a start takes then)
	@$(BIN)/python tests/campaigns/crash/$(or $(WAY),kill9).py --cycles $(CYCLES) --seed $(SEED) $(GIVEN)

stops: .venv/.installed-dev  ## SIGTERM under load: it ends in 10 s, with a clean log, and loses nothing (CYCLES=200 SEED=0, 2 to 8 s each)
	@$(BIN)/python tests/campaigns/crash/stops.py --cycles $(CYCLES) --seed $(SEED) $(GIVEN)

full-disk: CYCLES = 100
full-disk: .venv/.installed-dev  ## fill and free a small disk under a server (CYCLES=100 SEED=0); needs unshare
	@mkdir -p build/disk && unshare -rm sh -c 'mount -t tmpfs -o size=64m tmpfs build/disk && exec $(BIN)/python tests/campaigns/crash/full_disk.py --data build/disk/store --cycles $(CYCLES) --seed $(SEED) $(GIVEN)'

simulate: SEEDS = 1000000
simulate: MINUTES = 10
simulate: START = 0
simulate: WHAT = store
simulate: .venv/.installed-dev  ## a store, or a cluster, takes turns by a seed, with failures, every answer checked (WHAT=cluster MINUTES=10 START=0 PLANTED=log_not_synced)
	@$(BIN)/python -m tests.simulation.$(WHAT) --seeds $(SEEDS) --start $(START) --minutes $(MINUTES) $(if $(PLANTED),--planted $(PLANTED))

race: .venv/.installed-dev  ## writers, scanners and all compactions at once, every scan checked (SECONDS=60 SEED=0)
	@$(BIN)/python tests/campaigns/race/race.py --seconds $(SECONDS) --seed $(SEED) $(GIVEN)

live: .venv/.installed-dev  ## read a directory beside the process that changes it and is killed, every read checked (SECONDS=60 SEED=0)
	@$(BIN)/python tests/campaigns/live/campaign.py --seconds $(SECONDS) --seed $(SEED) $(GIVEN)

isolation: .venv/.installed-dev  ## record what clients did and saw, and look for anomalies (SECONDS=60 SEED=0 WAY=embedded, server, servers, failover or replica)
	@$(BIN)/python tests/campaigns/isolation/campaign.py --way $(or $(WAY),embedded) --seconds $(SECONDS) --seed $(SEED) $(GIVEN)

nested: .venv/.installed-dev  ## random nested columns by every way into a table and out of one (COUNT=5000 SEED=0)
	@$(BIN)/python tests/campaigns/nested/campaign.py --count $(COUNT) --seed $(SEED) $(GIVEN)

versions: .venv/.installed-dev  ## earlier versions out of the history, beside this one: stores, clients, servers, upgrades (SEED=0 ARGS="--only 0.1.0")
	@$(BIN)/python tests/campaigns/versions/campaign.py --seed $(SEED) $(ARGS)

decay: .venv/.installed-dev  ## flip bits under a running store that is scanned, compacted and backed up (FLIPS=300 SEED=0)
	@$(BIN)/python tests/campaigns/corruption/decay.py --flips $(FLIPS) --seed $(SEED) $(GIVEN)

leases: .venv/.installed-dev  ## slow scans of many tablets under a second of history, every one checked (SECONDS=60 SEED=0 SCAN_SECONDS=8)
	@$(BIN)/python tests/campaigns/race/leases.py --seconds $(SECONDS) --seed $(SEED) --scan-seconds $(SCAN_SECONDS) $(GIVEN)

moves: .venv/.installed-dev  ## tablets that keep moving between servers, every scan checked (SECONDS=60 SEED=0; WAY=directory or moto: processes that fail)
	@$(BIN)/python tests/clients/cluster/moves_campaign.py --seconds $(SECONDS) --seed $(SEED) $(if $(WAY),--way $(WAY) --lease $(or $(LEASE),2)) $(GIVEN)

jobs: .venv/.installed-dev  ## jobs on a table of three servers, under moves, compared row by row (SECONDS=60 SEED=0)
	@$(BIN)/python tests/clients/cluster/job_campaign.py --seconds $(SECONDS) --seed $(SEED) $(GIVEN)

pairs: COUNT = 100
pairs: .venv/.installed-dev  ## two backups, restores or exports at once, over and over, some killed (COUNT=100 SEED=0)
	@$(BIN)/python tests/clients/jobs/pairs_campaign.py --count $(COUNT) --seed $(SEED) $(GIVEN)

attack: .venv/.installed-dev  ## misbehaving clients beside an honest one (SECONDS=5 SEED=0 ONLY=idle_readers)
	@$(BIN)/python tests/campaigns/attack/attack.py --seconds $(or $(filter-out 60,$(SECONDS)),5) --seed $(SEED) $(if $(ONLY),--only $(ONLY))

stalled: .venv/.installed-dev  ## the rate of a fast reader beside stalled ones (READERS="100 1000")
	@$(BIN)/python tests/campaigns/attack/stalled_readers.py --counts $(or $(READERS),100 1000)

soak: MINUTES = 60
soak: .venv/.installed-bench  ## sixteen mixed clients for an hour: memory, files and latencies stay flat (MINUTES=60 CLIENTS=16 SEED=0 OUT=build/soak)
	@$(BIN)/python tests/campaigns/soak/soak.py --minutes $(MINUTES) --clients $(or $(CLIENTS),16) --seed $(SEED) --out $(or $(OUT),build/soak) $(GIVEN)

churn: ROWS = 5000000
churn: .venv/.installed-dev  ## update all rows ten times in bounded memory (ROWS=5000000 ROUNDS=10 MEMORY_MB=512 SEED=0)
	@$(BIN)/python tests/campaigns/churn/churn.py --rows $(ROWS) --rounds $(ROUNDS) --memory-mb $(MEMORY_MB) --seed $(SEED) $(GIVEN)

streaming: .venv/.installed-dev  ## stop and start a stream of Spark at random (RESTARTS=100 SEED=0)
	@.ci/java.sh
	@$(BIN)/python tests/clients/spark/streaming.py --restarts $(RESTARTS) --seed $(SEED) $(GIVEN)

mirror: SECONDS = 600
mirror: .venv/.installed-dev  ## kill a mirror of PostgreSQL, PostgreSQL and the store under load, every row compared (SECONDS=600 KILLS=50 SEED=0)
	@.ci/postgres.sh
	@$(BIN)/python tests/campaigns/mirror/campaign.py --seconds $(SECONDS) $(if $(KILLS),--kills $(KILLS)) --seed $(SEED) $(GIVEN)

kafka: MESSAGES = 1000000
kafka: .venv/.installed-dev  ## kill the consumers of a group, their store and their broker under load, each message applied once (MESSAGES=1000000 KILLS=40 SEED=0 BROKER=real)
	@$(BIN)/python tests/campaigns/kafka/campaign.py --messages $(MESSAGES) $(if $(KILLS),--kills $(KILLS)) --seed $(SEED) $(if $(BROKER),--broker $(BROKER)) $(if $(PLANTED),--planted $(PLANTED)) $(GIVEN)

kills: SECONDS = 600
kills: .venv/.installed-dev  ## kill executors, drivers and the server of Spark at random, every row checked (SECONDS=600 SEED=0 BUCKET=1)
	@.ci/java.sh javac
	@$(BIN)/python tests/clients/spark/kills.py --seconds $(SECONDS) --seed $(SEED) --steps "$(STEPS)" --faults "$(FAULTS)" $(if $(BUCKET),--bucket) $(if $(PLANTED),--planted $(PLANTED)) $(GIVEN)

clean:  ## remove .venv and everything generated
	@rm -rf .venv .typing build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.installed-%: pyproject.toml .ci/venv.sh
	@.ci/venv.sh $*
