# `make run` and `make test` are all that a fresh machine needs: each makes the environment first when it is missing.
PYTHON ?= python3.11
JOBS ?= 2
CONFIG ?= config/config.yaml
# Rules call the command line, so it must be on the PATH of jobs.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Runs and tests start hundreds of processes, each of which would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run open bench gpu gpu-wheels gpu-images gpu-run gpu-merge test test-shapes test-all test-long fuzz test-flower test-frameworks test-storage test-slurm slurm-faults \
  chaos report ui check lock site reference figures sbom release findings

run: .venv/ready
	@leakbound config --configfile $(CONFIG) > /dev/null  # names the line of what is no YAML, which Snakemake does not
	snakemake -j $(JOBS) --configfile $(CONFIG)

# The page of the newest run, in a browser.
open: .venv/ready
	python -m webbrowser -t "file://$$(ls -t $(CURDIR)/results/*/report.html | head -n 1)"

# Files go to JOBS processes in the order of tests/conftest.py: what takes long begins first.
PYTEST := python -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder

# SLOW=1: with the long tail in one session, which collects and makes what tests share once, and what took longest.
SLOW ?=
test: .venv/ready
	$(if $(SLOW),FUZZ=1500 )$(PYTEST)$(if $(SLOW), -m "slow or not slow" --durations=60 --durations-min=5)

# The same where arrays are computed with, while shapes and types of all arguments are checked, which takes up to twice
# the time: without tests that call nothing but what others do, and only if every function with arrays is called.
test-shapes: .venv/ready
	$(PYTEST) -m "(shapes or not slow)$(if $(THOROUGH),, and not no_shapes)" --jaxtyping-packages=leakbound,leakbound_lab,checked_functions.checked \
	  $(addprefix tests/,accounting attacks channels models papers training)

# All of that and the long tail: the whole chain, every preset's jobs, faults, servers, some 1,500 cases of bad input.
# Simulations of error rates are four times as long as in CI, and all presets are listed.
test-all: export THOROUGH := 1
test-all: test test-shapes test-long

test-long: .venv/ready
	$(PYTEST) -m slow
	FUZZ=1500 $(PYTEST) tests/fuzz

# Bad input of all kinds: FUZZ cases, other ones each time. `make test` and `make test-all` try the same ones everywhere.
FUZZ ?= 20000
fuzz: .venv/ready
	HYPOTHESIS_PROFILE=default FUZZ=$(FUZZ) $(PYTEST) -m "slow or not slow" tests/fuzz

# Flower asks for older versions of some of what the rest uses: they lie in a folder that comes before .venv.
FLOWER ?= tests/engine/test_flower_mod.py tests/engine/test_flower_example.py tests/engine/test_product_frameworks.py
test-flower: .venv/ready .venv-flower/ready
	PYTHONPATH=.venv-flower python -m pytest -q $(FLOWER)

# Lightning, Accelerate and transformers are no dependencies: they lie in a folder beside .venv, for what is made for them alone.
test-frameworks: .venv/ready .venv-frameworks/ready
	PYTHONPATH=.venv-frameworks python -m pytest -q tests/engine/test_accelerate.py tests/engine/test_lightning.py \
	  tests/engine/test_huggingface.py tests/engine/test_product_frameworks.py tests/engine/test_examples.py

# Snakemake's storage plugin for S3, and a server to try it with, lie in such a folder, too.
test-storage: .venv/ready .venv-storage/ready
	PYTHONPATH=$(CURDIR)/.venv-storage python -m pytest -q tests/workflow/test_object_storage.py

# Kill anything: the configuration once undisturbed, then under `kill -9` at random moments; nothing may differ.
chaos: .venv/ready
	python tests/benchmarks/chaos.py --configfile $(CONFIG) -j $(JOBS) --out results/chaos.json

# Through a real SLURM; where none answers, says why and tests nothing. docs/cluster.md: a queue of one machine.
test-slurm: .venv/ready
	LEAKBOUND_SLURM=$${LEAKBOUND_SLURM:-1} python -m pytest -q -n 2 --dist loadfile -m "slow or not slow" --durations=8 tests/cluster

# CONFIG through SLURM while its jobs and the coordinator are killed, and once without; prints what it counted.
slurm-faults: .venv/ready
	python tests/benchmarks/slurm_faults.py --configfile $(CONFIG)

# Every number of docs/performance.md: paired measurements, into results/reference/benchmarks. BENCH=--quick: 5 minutes.
# BUILD=FOLDER: this checkout over another one. SIZES=1: up to a million records, into results/reference/sizes.
BENCH ?=
bench: .venv/ready
	OMP_NUM_THREADS=1 python tests/benchmarks/$(if $(BUILD),builds.py $(BUILD),$(if $(SIZES),sizes.py,bench.py)) $(BENCH)

# What only a GPU can show: right, and how fast; four minutes, into results/gpu. GPU="--device cpu --quick":
# a rehearsal; GPU="--keep results/gpu": into results/reference/gpu. docs/cluster.md: on a machine without a network.
GPU ?=
gpu: .venv/ready
	python tests/benchmarks/gpu.py $(GPU)

# Wheels of what a machine lacks that has a PyTorch of its own, and of this project, into build/gpu-wheels.
WHEELS ?=
gpu-wheels: .venv/ready
	python tools/gpu_wheels.py $(WHEELS)

# The first records of CONFIG's images, into build/gpu-images, which is then LEAKBOUND_DATA there and here.
gpu-images: .venv/ready
	python tools/gpu_images.py --configfile $(CONFIG)

# CONFIG on a machine that is lent for MINUTES, then a pack of what is finished; needs no .venv. docs/cluster.md.
MINUTES ?= 9
RUN ?=
gpu-run:
	python3 tools/gpu_run.py --config $(CONFIG) --minutes $(MINUTES) $(RUN)

# All parts of such a pack into results, so that CONFIG goes on with what is missing: PACK="packs/pack.tgz.*".
gpu-merge: .venv/ready
	python tools/gpu_packs.py --configfile $(CONFIG) --merge $(PACK) --jobs $(JOBS)

# One page to read, results/<preset>/report.html; and Snakemake's own, with run times and the graph of jobs.
report: .venv/ready
	snakemake -j $(JOBS) --configfile $(CONFIG) -- report
	snakemake -j 1 --configfile $(CONFIG) --report report.html

ui: .venv/ready
	leakbound ui --configfile $(CONFIG)

# The documentation as a site, site/index.html; its notebooks are run in .venv. A link that leads nowhere is an error.
site: .venv-site/ready .venv/ready
	.venv-site/bin/sphinx-build -q -E -W --keep-going -b html docs site

# Keep the results of a finished configuration, and bring docs/figures.md and the README up to date with them.
reference: .venv/ready
	python tools/keep.py --configfile $(CONFIG)
	python tools/figures.py

# Pages whose numbers come from results/reference.
figures: .venv/ready
	python tools/figures.py
	python tools/findings.py

# What other libraries do where one would guess otherwise (docs/real_things.md): each in an environment of its own.
findings:
	@changed=; for script in findings/*.sh; do echo "$$script"; "./$$script" || changed="$$changed $$script"; done; \
	  test -z "$$changed" || { echo "no longer as docs/real_things.md says, or not installed:$$changed"; exit 1; }

check: .venv/ready
	ruff check
	ruff format --check
	mypy
	lint-imports
	codespell
	snakefmt --check workflow
	leakbound config --check
	python tools/figures.py --check
	snakemake --lint
	.ci/audit

# Bill of materials of the environment, CycloneDX, which the tool compares with the schema of that standard.
sbom: .venv/ready # the checkout first on the path, or its folder would be named as what was installed
	mkdir -p results
	PYTHONPATH=src cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o results/sbom.json .venv/bin/python

# Files of VERSION in dist/, checked in an empty environment; docs/contributing.md says what remains to be done.
release: .venv/ready
	python tools/release.py $(VERSION)

# Resolve with pip where torch resolves to its CPU build, then list the hashes of all files of each release;
# docs/contributing.md says why. Pins of the other environments are kept, and hashed anew.
HASHED := uv pip compile -q --no-deps --generate-hashes --python-version 3.11 --no-header --no-annotate
PINS := requirements/pins.txt
lock: SHELL := bash
lock: .SHELLFLAGS := -euo pipefail -c
lock: .venv/ready
	grep -ho '^[a-z0-9._-]*==[^ ]*' requirements/main.lock requirements/torch.lock | sort > .venv/all.txt
	pip-compile -q --allow-unsafe --strip-extras --no-annotate --no-header --no-emit-index-url --no-emit-find-links \
	  --extra workflow --extra dev --extra server -o .venv/all.txt pyproject.toml
	sed -n 's/+cpu$$//; /^[a-z0-9._-]*==/p' .venv/all.txt | sort > $(PINS)
	uv pip compile -q --python-version 3.11 --no-header --no-annotate $(PINS) | sort | comm -13 $(PINS) - \
	  | $(HASHED) - > requirements/cuda.lock
	grep -v '^torch==' $(PINS) | $(HASHED) - > requirements/main.lock
	grep -E '^(pip|setuptools)==' $(PINS) | $(HASHED) - > requirements/build.lock
	pip download -q --no-deps -d .venv/torch "$$(grep '^torch==' $(PINS))"
	grep '^torch==' $(PINS) | $(HASHED) - > requirements/torch.lock
	{ ls .venv/torch | sed -n 's/^torch-\([^-]*\)-.*/torch==\1 \\/p'; pip hash .venv/torch/torch-*.whl | sed -n 's/^--hash/    &/p'; } \
	  > requirements/torch.cpu
	grep -o '^[a-z0-9._-]*==[^ ]*' requirements/flower.lock | $(HASHED) - > .venv/flower.lock
	mv .venv/flower.lock requirements/flower.lock
	grep -o '^[a-z0-9._-]*==[^ ]*' requirements/frameworks.lock | $(HASHED) - > .venv/frameworks.lock
	mv .venv/frameworks.lock requirements/frameworks.lock
	grep -o '^[a-z0-9._-]*==[^ ]*' requirements/storage.lock | $(HASHED) - > .venv/storage.lock
	mv .venv/storage.lock requirements/storage.lock
	grep -o '^[a-z0-9._-]*==[^ ]*' requirements/site.lock | $(HASHED) - > .venv/site.lock
	mv .venv/site.lock requirements/site.lock

# All that is installed has a hash in a lock, and nothing is resolved. Without a GPU comes the CPU build of torch where pip
# finds it, else the one of the index, with what the CUDA build asks for beside it.
# connection-pool has no wheel: it and this project are built by the setuptools of the lock.
INSTALL := -m pip install --quiet --require-hashes --no-deps --no-build-isolation --only-binary :all: \
  --no-binary connection-pool
define ENVIRONMENT
	$(PYTHON) -m venv $(1)
	$(1)/bin/python $(INSTALL) --no-compile -r requirements/build.lock
	command -v nvidia-smi > /dev/null || $(1)/bin/python $(INSTALL) --no-compile -r requirements/torch.cpu 2> /dev/null || true
	$(1)/bin/python $(INSTALL) --no-compile -r requirements/torch.lock -r $(2)
	$(1)/bin/python -m pip check > $(1)/check || $(1)/bin/python $(INSTALL) --no-compile -r requirements/cuda.lock
	$(1)/bin/python -m pip check
	$(1)/bin/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@# Tests of libraries are a third of what pip would compile.
	$(1)/bin/python -m compileall -q -j 2 -x '/(tests?|testing|databricks)/' $(1)/lib || true
	@# Relative: Python ends before it begins where this path has an umlaut and the locale, such as LC_ALL=C, knows none.
	for path in $(1)/lib/python*/site-packages/__editable__*.pth; do echo ../../../../src > $$path; done
	touch $(1)/ready
endef
LOCKS := $(addprefix requirements/,build.lock torch.lock torch.cpu cuda.lock)

.venv/ready: requirements/main.lock $(LOCKS) pyproject.toml
	$(call ENVIRONMENT,.venv,requirements/main.lock)

.venv-flower/ready .venv-frameworks/ready .venv-storage/ready: .venv-%/ready: requirements/%.lock | .venv/ready
	rm -rf .venv-$*
	python $(INSTALL) --target .venv-$* -r requirements/$*.lock
	touch $@

.venv-site/ready: requirements/site.lock
	$(PYTHON) -m venv .venv-site
	.venv-site/bin/python -m pip install --quiet --require-hashes --no-deps --only-binary :all: -r requirements/site.lock
	touch $@
