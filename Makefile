# `make study` does the main job, `make test` runs the tests. Each sets up all it needs: Python 3.11+, pip and make are enough.
PYTHON ?= python3
BIN := .venv/bin
SMOLLM2_CELL := $(BIN)/rftlab run cell --level llm --pair smollm2-words --seeds 1 --compute.engine vllm --compute.threads 1
SIDE_BY_SIDE := --numprocesses auto --dist worksteal

.PHONY: study test test-llm test-vllm reference pilots reference-smollm2 lint bench bench-llm clean

study: .venv/installed
	$(BIN)/rftlab reproduce

test: .venv/installed-test
	$(BIN)/python -m pytest $(SIDE_BY_SIDE)

test-llm: .venv/installed-llm
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(wildcard tests/test_llm_*.py)

test-vllm: .venv/installed-vllm
	$(BIN)/python -m pytest tests/test_vllm.py

reference: .venv/installed-llm
	$(BIN)/rftlab reproduce --level llm --pair tiny-mix97 tiny-mod97 tiny-sign97 --seeds 3
	$(BIN)/python -m studies.export results

reference-smollm2: .venv/installed-vllm
	$(SMOLLM2_CELL) --preset minimalist --batch-size 32 --rollouts 1
	$(SMOLLM2_CELL) --preset paper_text --batch-size 32 --rollouts 8
	$(BIN)/python -m studies.export results

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: .venv/installed-bench
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 XLA_FLAGS="--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1" $(BIN)/python -m tests.bench

bench-llm: .venv/installed-bench-llm
	$(BIN)/python -m tests.bench_llm $(if $(SMOLLM2),--smollm2)

pilots: .venv/installed-llm
	for pair in tiny-mix97 tiny-mod97 tiny-sign97; do $(BIN)/rftlab pilot --pair $$pair --designs || exit 1; done
	$(BIN)/rftlab pilot --pair smollm2-words --designs --train-questions 24 --test-questions 100 --samples 4
	$(BIN)/python -m studies.bridge.pilot_store results

clean:
	rm -rf .venv build *.egg-info

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "rftlab needs Python 3.11 or newer; name one with: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv

.venv/installed: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/installed-test: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@ .venv/installed

.venv/installed-llm: .venv/installed-test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,llm,lora,ray]'
	touch $@

.venv/installed-vllm: .venv/installed-llm tests/install_vllm.py
	$(BIN)/python -m tests.install_vllm
	touch $@

.venv/installed-bench: .venv/installed-test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check jax torch
	touch $@

.venv/installed-bench-llm: .venv/installed-llm
	$(BIN)/python -m pip install --quiet --disable-pip-version-check accelerate 'trl>=1.16'
	touch $@
