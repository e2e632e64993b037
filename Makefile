# make demo      the chat in a browser, on SQLite, no key needed
# make demo-cluster  two servers, a worker, PostgreSQL and Redis behind nginx
# make test      everything that can run here; ARGS=... some
# make soak      ten minutes of chats while processes are killed; SECONDS=60
# make bench     what it costs; ONLY=G1,G6 some goals, QUICK=1 a small run
# make lint      style, types, imports, sizes, migrations, docs
#
# Both environments are made at the first call and kept up to date with
# pyproject.toml. PYTHON=... chooses the interpreter.

ifndef PYTHON
PYTHON := $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	2>/dev/null && { echo $$p; break; }; done)
endif
HOST ?= 127.0.0.1
PORT ?= 8000
JOBS ?= 3
VENV := .venv
DEMO := .venv-demo
PIP  := -m pip --disable-pip-version-check install -qq

# The demo brings a package only where the environment asks for what needs it.
EXTRAS := daphne
ifneq ($(OPENAI_API_KEY)$(OPENAI_BASE_URL),)
EXTRAS := $(EXTRAS),openai
endif
ifneq ($(REDIS_URL),)
EXTRAS := $(EXTRAS),redis
endif
ifeq ($(DEMO_DATABASE),postgresql)
EXTRAS := $(EXTRAS),postgresql
endif
comma := ,
DEMO_READY := $(DEMO)/.ready-$(subst $(comma),-,$(EXTRAS))

CLUSTER_READY := $(DEMO)/.ready-cluster

# MariaDB's driver is compiled where it is installed, which takes its client
# library. Without that, the tests on MariaDB are skipped and say so.
CLIENT := $(shell for l in mysqlclient mariadb libmariadb perconaserverclient; do \
	pkg-config --exists $$l 2>/dev/null && { echo $$l; break; }; done)
READY := $(VENV)/.ready$(if $(CLIENT),-mysql)

# The official hooks for the tests of the wire. Without Node.js those are skipped
# and say so.
NPM := $(shell command -v node >/dev/null 2>&1 && command -v npm 2>/dev/null)
HOOKS := tests/wire/node/node_modules
HOOKS_READY := $(if $(NPM),$(HOOKS)/.ready)

# Suites that share the processors well, and those whose processes have leases of
# a second or must not be held up: they run alone.
SHARING := abuse after_a_fork between_processes cut held killed lost_answers on_sqlite
SHARING := $(SHARING:%=tests/concurrency/test_streams_%.py)
CALM  := tests/browser tests/contract tests/docs tests/integration tests/unit \
	tests/wire $(SHARING)
TIMED := $(filter-out $(SHARING),$(wildcard tests/concurrency/test_*.py))

.PHONY: demo demo-cluster test test-main test-matrix soak bench lint docs coverage clean python hooks

demo: $(DEMO_READY)
	@$(DEMO)/bin/python -c 'import socket; socket.create_server(("$(HOST)", $(PORT))).close()' \
		2>/dev/null || { echo "Port $(PORT) of $(HOST) is taken: make demo PORT=8001"; exit 1; }
	@$(DEMO)/bin/python manage.py migrate --verbosity 0
	@echo
	@echo "  The chat is at http://$(HOST):$(PORT)/ (Ctrl-C ends it, PORT=... moves it)"
	@echo
	@exec $(DEMO)/bin/python -m daphne -b $(HOST) -p $(PORT) -v 0 \
		demo_project.asgi:application

demo-cluster: $(CLUSTER_READY)
	@PORT=$(if $(filter command line environment,$(origin PORT)),$(PORT)) \
		exec $(DEMO)/bin/python -m demo_project.cluster

test: test-main test-matrix

test-main: $(READY) hooks
ifneq ($(ARGS),)
	$(VENV)/bin/python -m pytest $(ARGS)
else
	$(VENV)/bin/python -m pytest -n $(JOBS) --dist loadfile $(CALM)
	$(VENV)/bin/python -m pytest $(TIMED)
endif

# Unit and contract tests on the other supported pairs of Python and Django.
test-matrix: $(READY)
	$(VENV)/bin/python tests/matrix.py

# The npm packages of tests/wire/node, exactly as its lock file says.
hooks: $(HOOKS_READY)
	@[ -n "$(NPM)" ] || echo "No tests with the official hooks: no npm on PATH" \
		"(Debian: apt-get install nodejs npm)."

soak: $(READY)
	@$(VENV)/bin/python -m tests.soak

bench: $(VENV)/.ready-bench
	@$(VENV)/bin/python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo
	$(VENV)/bin/python -m tests.sizes
	$(VENV)/bin/python manage.py makemigrations --check --dry-run
	$(VENV)/bin/python -W error manage.py check
	@$(MAKE) --no-print-directory docs

docs: $(READY)
	$(VENV)/bin/python -m sphinx -n -W --keep-going -q -b html docs build/docs
	@echo "build/docs/index.html"

coverage: $(READY) hooks
	$(VENV)/bin/python -m pytest --cov --cov-report=term --cov-report=html:build/coverage $(ARGS)

clean:
	rm -rf build dist .venv .venv-* .cache .mypy_cache .ruff_cache .pytest_cache \
		.import_linter_cache .hypothesis *.egg-info $(HOOKS)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml | python
	@echo "Installing what the tests need into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python $(PIP) --editable '.[dev]'
ifneq ($(CLIENT),)
	@$(VENV)/bin/python $(PIP) --editable '.[mysql]' \
		|| echo "No tests on MariaDB: its driver could not be compiled."
else
	@echo "No tests on MariaDB: pkg-config finds no client library of it" \
		"(Debian: apt-get install libmariadb-dev pkg-config)."
endif
	@touch $@

$(HOOKS)/.ready: tests/wire/node/package.json tests/wire/node/package-lock.json
	@echo "Installing the official hooks into $(HOOKS) ..."
	@cd tests/wire/node && npm ci && touch node_modules/.ready \
		|| echo "No tests with the official hooks: npm could not install them."

$(VENV)/.ready-bench: $(READY)
	@$(VENV)/bin/python $(PIP) --editable '.[bench]'
	@touch $@

$(DEMO_READY): pyproject.toml | python
	@echo "Installing what the demo needs into $(DEMO) ..."
	@$(PYTHON) -m venv $(DEMO)
	@$(DEMO)/bin/python $(PIP) --editable '.[$(EXTRAS)]'
	@touch $@

$(CLUSTER_READY): pyproject.toml | python
	@echo "Installing what the cluster needs into $(DEMO) ..."
	@$(PYTHON) -m venv $(DEMO)
	@$(DEMO)/bin/python $(PIP) --editable '.[cluster]'
	@touch $@

python:
	@[ -n "$(PYTHON)" ] || { \
		echo "This needs Python 3.11 or newer with its venv and ensurepip modules."; \
		echo "Found: $$(python3 --version 2>&1 || true)"; \
		echo "Install it (Debian: apt-get install python3 python3-venv), or say"; \
		echo "  make PYTHON=/path/to/python3"; \
		exit 1; }
