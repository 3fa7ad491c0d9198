# Two commands do everything on a fresh machine: `make demo` and `make test`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
PYTHON := $(VENV)/bin/python
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: help demo test lint docs reference unit rollouts service ranks learn api crash-sweep e2e crds lock bench-failover bench-statistics bench-memory bench-pipeline bench-rollback bench-operator cluster cluster-down images clean bench-trainer bench-algorithms bench-resume

help: ## this list
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(VENV)/.ready: requirements/dev.txt pyproject.toml hack/venv
	hack/venv $(VENV)

demo: ## the whole story on a real Kubernetes: made on the spot, or CONTEXT=name for your own
	@python3 hack/demo

test: lint unit rollouts service ranks learn api e2e ## everything below, on a real Kubernetes made on the spot

lint: $(VENV)/.ready ## ruff, mypy --strict, import contracts, generated files up to date, the documentation
	ruff check .
	ruff format --check .
	mypy
	lint-imports
	$(PYTHON) -m learnloop_api.crd check crds
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

docs: $(VENV)/.ready ## the documentation as a site in dist/site
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict

reference: $(VENV)/.ready ## write the generated pages of docs/reference
	$(PYTHON) hack/reference write

unit: $(VENV)/.ready ## no cluster, under a minute
	hack/unit

rollouts: $(VENV)/.ready ## whole rollouts, played by the operator's simulator: no cluster, a minute
	pytest tests/rollouts -n "$${UNIT_PROCESSES:-auto}"

service: $(VENV)/.ready ## the data plane, the SDK and policy servers as processes, on real PostgreSQL, NATS, Weaviate (built once, 3 minutes) and S3 servers: no cluster, five minutes
	env -u PYTHONDONTWRITEBYTECODE pytest tests/service -n "$${SERVICE_PROCESSES:-auto}" --dist loadfile

ranks: $(VENV)/.ready ## training processes that are killed, stopped, starved and started again: no cluster, two minutes
	pytest tests/ranks

learn: $(VENV)/.ready ## every algorithm learns a small task, and beats the simpler one beside it: no cluster, two minutes
	pytest tests/learning -n "$${UNIT_PROCESSES:-auto}"

api: $(VENV)/.ready ## against real etcds and kube-apiservers, one pair for each of two processes: much of it is waiting; nine minutes
	pytest tests/api -n "$${API_PROCESSES:-2}" --dist loadfile

crash-sweep: $(VENV)/.ready ## the operator dies before and after every API write of whole rollouts; KILLS=12: so many SIGKILLs of the process; real API server
	@PYTHONPATH=hack $(PYTHON) -m testing.operators.$(if $(KILLS),process_kills --kills $(KILLS),crash_sweep)

e2e: $(VENV)/.ready ## against real nodes, pods and traffic
	pytest tests/e2e

crds: $(VENV)/.ready ## write crds/*.yaml and the chart's copy from the models
	$(PYTHON) -m learnloop_api.crd write crds
	hack/sync-chart-crds

lock: ## pin requirements/*.txt anew
	hack/lock

bench-failover: $(VENV)/.ready ## how long nobody leads when the leader ends, is killed, or is stopped; that no two decide about one generation
	@$(PYTHON) -m bench.operator.failover

bench-statistics: $(VENV)/.ready ## how often rollouts err and how soon they are right, simulated, beside a polled t-test
	@$(PYTHON) -m bench.statistics

bench-rollback: $(VENV)/.ready ## from a breach to weight 0 on a real cluster, beside Flagger (needs root, 20 minutes)
	@PYTHONPATH=hack $(PYTHON) -m bench.rollback

bench-operator: $(VENV)/.ready ## 1,000 ModelDeployments and a burst of 10,000 objects on a real API server, beside a plain Kopf operator
	@PYTHONPATH=hack $(PYTHON) -m bench.operator

cluster: ## a real Kubernetes on this machine (GATEWAY=1 adds Contour and Envoy)
	python3 hack/cluster up

cluster-down: ## stop it and remove what it made
	python3 hack/cluster down

images: ## build the images whose inputs changed and load them
	python3 hack/images build

bench-algorithms: $(VENV)/.ready ## each algorithm beside the simpler one it must beat, ten seeds each, with intervals; ten CPU minutes
	@$(PYTHON) -m bench.algorithms

bench-memory: $(VENV)/.ready ## recall and stores through HTTP beside the usual schemas and a Weaviate, on the same data
	@PYTHONPATH=hack $(PYTHON) -m bench.memory

bench-pipeline: $(VENV)/.ready ## experience under load and under fire: latency, overhead, dry-runs, secrets, every process killed
	@$(PYTHON) -m bench.pipeline

bench-trainer: $(VENV)/.ready ## speed, time to solve and quality of training beside Stable-Baselines3, TorchRL and rlox (12 min)
	$(PYTHON) bench/trainer/compare.py $(PYTHON) "$$(bench/trainer/peer_venv $(PYTHON))"

bench-resume: $(VENV)/.ready ## 100 kills at random moments, 1 and 2 ranks: nothing changed, little lost (POINTS=20: fewer); ten to twenty minutes
	@$(PYTHON) -m bench.resume --points $${POINTS:-100} $(if $(ONLY),--only $(ONLY))

clean: ## remove the virtual environment and caches of this checkout
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
