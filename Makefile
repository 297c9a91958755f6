# `make study` does the main job, `make test` runs the tests. Each sets up all it needs: Python 3.11+, pip and make are enough.
# Versions are those of constraints.txt; NEWEST=yes takes the newest, in a folder of its own. CPU=yes takes torch without CUDA.
PYTHON ?= python3
VENV := .venv$(if $(filter yes,$(NEWEST)),-newest)
BIN := $(VENV)/bin
PINS := $(if $(filter yes,$(NEWEST)),,--constraint constraints.txt)
CPU_INDEX := https://download.pytorch.org/whl/cpu
# asked once: pip would try a blocked address again for every package
REACHED = $(shell $(PYTHON) -c "import urllib.request; urllib.request.urlopen('$(CPU_INDEX)/', timeout=10)" 2>/dev/null && echo yes)
TORCH_CPU = $(if $(filter yes,$(CPU)),$(if $(REACHED),--extra-index-url $(CPU_INDEX),$(warning $(CPU_INDEX) cannot be reached: torch comes from the usual index, which may have it with CUDA alone)))
# Python compiles a module when it is first imported, and most of what is installed never is
PIP := pip install --quiet --disable-pip-version-check --no-compile
# and where Python may not keep what it compiled, each process compiles it again: half of what a start takes
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL := $(BIN)/python -m $(PIP) $(PINS) $(TORCH_CPU)
IN_ORDER := tests/docs/test_tutorials.py::test_the_parts_run_in_order_in_one_folder
OWN_PROJECT := tests/docs/test_own_project.py::test_a_page_runs_in_a_project_of_its_own
SIDE_BY_SIDE := --numprocesses auto --dist worksteal

VERL_PACKAGES := verl 'torch>=2.13' cachetools fastapi uvicorn pytest hypothesis

.PHONY: study explore notebooks gpu-check test test-llm test-explore test-vllm test-verl test-trl trainer newest pins pins-verl reference pilots reference-smollm2 lint docs dist bench bench-llm house clean

study: $(VENV)/installed
	$(BIN)/rftlab reproduce

explore: $(VENV)/installed-explorer
	$(BIN)/rftlab explore $(wildcard results)

notebooks: $(VENV)/installed-notebooks
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m jupyterlab $(if $(filter 0,$(shell id -u)),--allow-root) examples

# the rounds are compiled before the workers of pytest start, each of which would compile them
test: $(VENV)/installed-test
	$(BIN)/python -m tests.support.worlds.compiled
	$(BIN)/python -m pytest $(SIDE_BY_SIDE)

test-llm: $(VENV)/installed-llm
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(IN_ORDER) tests/llm tests/docs/test_contributing.py '$(OWN_PROJECT)[08-own-task]'

test-explore: $(VENV)/installed-explore
	$(BIN)/python -m pytest -rs tests/explore

test-vllm: $(VENV)/installed-vllm
	$(BIN)/python -m pytest tests/llm/test_vllm.py

test-verl: .venv-verl/tests
	.venv-verl/bin/python -m pytest -W default tests/adapters/test_verl.py tests/adapters/test_verl_study.py
	.venv-verl/bin/python -m pytest -W default -k verl tests/docs/test_own_project.py

# TRL=FOLDER, a checkout of github.com/huggingface/trl: TRL's own tests too, which are not in its package
test-trl: $(VENV)/installed-trl
	$(BIN)/python -m pytest tests/adapters/test_trl.py tests/adapters/test_other_loops.py tests/logs/test_trl.py '$(OWN_PROJECT)[09-in-trl]'
	$(if $(TRL),$(BIN)/python -m tests.support.trainer.trl_own '$(TRL)')

trainer: $(VENV)/installed-trainer

# before the first hour on a GPU; CPU=yes: what can be checked without one
gpu-check: $(VENV)/installed-vllm
	-$(BIN)/python -c 'from rftlab.llm.models.smollm2 import smollm2_folder; smollm2_folder()'
	$(BIN)/python -m dev.gpu_check $(if $(filter yes,$(CPU)),--device cpu)

newest:
	rm -rf .venv-newest
	$(MAKE) NEWEST=yes test
	$(MAKE) NEWEST=yes test-llm

pins:
	rm -rf .venv-newest
	$(MAKE) NEWEST=yes .venv-newest/installed-vllm .venv-newest/installed-explore .venv-newest/installed-notebooks .venv-newest/installed-docs .venv-newest/installed-trl
	head -n 1 constraints.txt >constraints.new
	.venv-newest/bin/python -m pip freeze --exclude-editable | sed -E '/@|^(vllm|triton|nvidia-|cuda-|torchvision|torchaudio|apache-tvm-ffi)/d; s/\+cpu$$//' | tr A-Z a-z >>constraints.new
	mv constraints.new constraints.txt
	rm -rf .venv-newest

pins-verl:
	rm -rf .venv-verl
	$(MAKE) NEWEST=yes .venv-verl/installed
	head -n 1 constraints-verl.txt >constraints.new
	.venv-verl/bin/python -m pip freeze --exclude-editable | sed -E '/@|^(triton|nvidia-|cuda-)/d; s/\+cpu$$//' | tr A-Z a-z >>constraints.new
	mv constraints.new constraints-verl.txt

reference: $(VENV)/installed-llm
	$(BIN)/rftlab reproduce --level llm --pair tiny-mix97 tiny-mod97 tiny-sign97 --seeds 3
	$(BIN)/python -m dev.export results

reference-smollm2: $(VENV)/installed-vllm
	$(BIN)/python -m dev.smollm2 results
	$(BIN)/python -m dev.export results

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m mypy

docs: $(VENV)/installed-docs build/try.html
	rm -rf build/docs docs/reference/modules
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --jobs auto --quiet -d build/doctrees docs build/docs
	cp build/try.html build/docs/try.html

build/try.html: $(VENV)/installed-docs dev/try_page.py dev/try_page.js $(wildcard shared/*.py shared/*/*.py sim/*.py sim/*/*.py)
	$(BIN)/python -m dev.try_page $@

dist: $(BIN)/python
	$(PIP_INSTALL) build
	rm -rf build/dist
	$(BIN)/python -m build --outdir build/dist
	test -z "$$(find build/dist -name '*.whl' -size +5000k)"

house:
	$(PYTHON) dev/house.py

bench: $(VENV)/installed-bench
	$(BIN)/python -m benchmarks $(if $(ISA),--isa $(ISA))

bench-llm: $(VENV)/installed-bench-llm
	$(BIN)/python -m benchmarks.llm $(if $(SMOLLM2),--smollm2)

pilots: $(VENV)/installed-llm
	for pair in tiny-mix97 tiny-mod97 tiny-sign97; do $(BIN)/rftlab pilot --pair $$pair --designs || exit 1; done
	$(BIN)/rftlab pilot --pair smollm2-words --designs --train-questions 256 --test-questions 128 --samples 8 --temperature-questions 128 --temperature-samples 2 --many-questions 32
	$(BIN)/rftlab pilot --pair smollm2-largest --designs --train-questions 48 --test-questions 64 --samples 8 --temperatures --many-questions 0
	$(BIN)/python -m dev.pilots results

clean:
	rm -rf .venv .venv-newest .venv-verl build docs/reference/modules *.egg-info

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "rftlab needs Python 3.11 or newer; name one with: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(BIN)/python pyproject.toml constraints.txt
	$(PIP_INSTALL) --editable .
	touch $@

$(VENV)/installed-trainer: $(BIN)/python pyproject.toml constraints.txt
	$(PIP_INSTALL) --editable '.[llm]'
	touch $@ $(VENV)/installed

$(VENV)/installed-test: $(BIN)/python pyproject.toml constraints.txt
	$(PIP_INSTALL) --editable '.[test]'
	touch $@ $(VENV)/installed

$(VENV)/installed-llm: $(VENV)/installed-test
	$(PIP_INSTALL) --editable '.[test,llm,lora]'
	touch $@

$(VENV)/installed-explorer: $(BIN)/python pyproject.toml constraints.txt
	$(PIP_INSTALL) --editable '.[explore]'
	touch $@ $(VENV)/installed

$(VENV)/installed-explore: $(VENV)/installed-test
	$(PIP_INSTALL) --editable '.[test,explore]'
	touch $@

$(VENV)/installed-notebooks: $(BIN)/python pyproject.toml constraints.txt
	$(PIP_INSTALL) --editable '.[notebooks]'
	touch $@ $(VENV)/installed

$(VENV)/installed-vllm: $(VENV)/installed-llm tests/support/machine/install_vllm.py
	$(BIN)/python -m tests.support.machine.install_vllm $(PINS)
	touch $@

$(VENV)/installed-trl: $(VENV)/installed-llm
	$(PIP_INSTALL) trl accelerate tinker
	touch $@

$(VENV)/installed-docs: $(BIN)/python pyproject.toml constraints.txt
	$(PIP_INSTALL) --editable '.[docs]'
	touch $@ $(VENV)/installed

# verl wants older versions of some packages than we have: it lives apart
.venv-verl/installed: pyproject.toml constraints-verl.txt
	$(PYTHON) -m venv .venv-verl
	.venv-verl/bin/python -m $(PIP) $(if $(filter yes,$(NEWEST)),,--constraint constraints-verl.txt) $(TORCH_CPU) --editable . $(VERL_PACKAGES)
	touch $@

# verl's own tests come with its source, not with its wheel
.venv-verl/tests: .venv-verl/installed
	.venv-verl/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary verl --dest .venv-verl/source "$$(.venv-verl/bin/python -m pip freeze | grep ^verl==)"
	mkdir -p $@
	tar -xzf .venv-verl/source/verl-*.tar.gz -C $@ --strip-components 1 --wildcards 'verl-*/tests/trainer/ppo'
	touch $@

$(VENV)/installed-bench: $(VENV)/installed-test
	$(PIP_INSTALL) jax torch
	touch $@

$(VENV)/installed-bench-llm: $(VENV)/installed-llm
	$(PIP_INSTALL) accelerate 'trl>=1.16'
	touch $@
