# Set-up, tests, demo, benchmarks. Needs Python >= 3.11 and make; all that start an engine also a C++ compiler, for torch.compile.
PYTHON ?= python3
STORE ?= file
ARGS ?=
MAKEFLAGS += --no-print-directory
export PYTHONDONTWRITEBYTECODE = 1

run = @command -v $(PYTHON) >/dev/null || { echo "error: no $(PYTHON) here. Install Python 3.11 or newer, or name it: make $@ PYTHON=/path/to/python3.11" >&2; exit 1; }; \
	$(PYTHON) -m scripts

.DEFAULT_GOAL := help
.PHONY: help setup test demo bench lint testbed lock clean clean-cache

help:  ## show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup:  ## make .venv with .venv/bin/glowplug
	$(run) setup

test:  ## set up everything, then lint and all tests; ARGS="-k name" runs only those tests
	$(run) test --pytest="$(ARGS)"

demo:  ## a real vLLM, cold and then warm, and where the seconds went; STORE=s3 uses a real S3 server
	$(run) demo --store $(STORE)

bench:  ## all benchmarks, with the other loaders beside ours; ARGS="http local" runs only those, ARGS=--list names them
	$(run) bench --arguments="$(ARGS)"

lint:  ## ruff and mypy
	$(run) lint

testbed:  ## install the real vLLM, make the tiny model and build a Kubernetes API server (9 GB, in the cache folder)
	$(run) testbed

lock:  ## write requirements/*.lock from pyproject.toml; UPGRADE=1 moves to the newest versions
	$(run) lock $(if $(UPGRADE),--upgrade)

clean:  ## remove what the targets above made in the checkout
	$(run) clean

clean-cache:  ## the same, and the cache folder that all checkouts share
	$(run) clean --cache
