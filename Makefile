# Every target sets up what it needs first; once set up, that costs a moment.
SHELL := /bin/bash
VENV := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo test soak bench check requirements

help:
	@echo "make demo          a full offline campaign on this machine's CPU, no key needed"
	@echo "make setup         make .venv and install what is missing (the other targets do this too)"
	@echo "make test          the tests"
	@echo "make check         lint, format, types and import rules"
	@echo "make soak          endurance runs, left out of make test"
	@echo "make bench         what is measured rather than tested"
	@echo "make requirements  re-pin requirements.txt from pyproject.toml"

setup:
	@tools/setup.sh

demo: setup
	$(VENV)/kernel-agent demo

test: setup
	$(VENV)/pytest -m "not soak"

soak: setup
	$(VENV)/pytest -m soak

bench: setup
	$(VENV)/python -m benchmarks

check: setup
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/mypy
	$(VENV)/lint-imports

requirements:
	"$$(tools/find-uv.sh)" pip compile --quiet pyproject.toml --extra dev --universal --python-version 3.12 \
		--no-emit-index-url --no-header --no-annotate -o requirements.txt
