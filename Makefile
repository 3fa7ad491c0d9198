# Two commands do everything on a fresh machine: `make demo` and `make test`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
PYTHON := $(VENV)/bin/python
READY ?= $(VENV)/.ready
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# What one process compiled, a hundred others read: the operator's imports take a third of the time.
unexport PYTHONDONTWRITEBYTECODE
# As many processes as cores run the tests: a second thread of one only waits for a core, and busily.
unit rollouts service ranks learn api: export OMP_NUM_THREADS ?= 1

.PHONY: help demo test check lint docs reference dashboards unit rollouts service pages ranks learn gpu api crash-sweep e2e argocd flux loki crds lock bench-failover bench-statistics bench-memory bench-recall bench-pipeline bench-adversary bench-rollback bench-loop bench-operator bench-scale cluster cluster-down images remove cold-rehearsal clean bench-trainer bench-gpu bench-resume bench-gateway bench-gates audit check-manifests judges

help: ## this list
	@hack/help Makefile

$(VENV)/.ready: requirements/dev.txt pyproject.toml hack/venv
	hack/venv $(VENV)

$(VENV)/.light: requirements/dev.txt pyproject.toml hack/venv
	WITHOUT_TORCH=1 hack/venv $(VENV)

.PHONY: try
try: ## the loop on this machine alone, as processes of yours: no cluster, no Docker, no root; three minutes the first time
	@hack/learnloop try

demo: ## one whole turn of the loop, on a Kubernetes made on the spot; CONTEXT=name: on yours
	@python3 hack/demo

.PHONY: demo-language
demo-language: ## a language model learns to use tools, and bad adapters of it are stopped, on such a cluster
	@python3 hack/demo_language

test: $(VENV)/.ready ## every check there is, in half an hour on two cores
	@stage() { TIMEFORMAT="make $$*: %0R s; of processors %0U s by programs, %0S s by the kernel"; \
		time $(MAKE) --no-print-directory "$$@"; }; \
	set -e; stage --jobs=3 --output-sync=target lint pages ranks; \
	for name in unit rollouts service api; do stage $$name; done; \
	log=$$(mktemp); hack/idle $(MAKE) --no-print-directory learn >$$log 2>&1 & learn=$$!; \
	trap 'kill -- -$$learn 2>/dev/null || true; rm -f $$log' EXIT; \
	stage e2e; status=0; wait $$learn || status=$$?; cat $$log; exit $$status  # learning only computes; e2e mostly waits

check: ## what needs no server: three minutes; without torch (5 GB) and its tests until `make test` installs it
	@$(MAKE) --no-print-directory lint unit READY=$(VENV)/$(if $(wildcard $(VENV)/.ready),.ready,.light)

lint: $(READY) ## ruff, mypy --strict, import contracts, budgets of size, generated files, the documentation
	ruff check .
	ruff format --check .
	mypy $(if $(findstring light,$(READY)),$(addprefix -p learnloop_,api common operator environments serving gateway gates dataplane sdk))
	lint-imports
	$(PYTHON) hack/house
	$(PYTHON) -m learnloop_api.crd check crds
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

docs: $(VENV)/.ready ## the documentation as a site in dist/site
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict

reference: $(VENV)/.ready ## write the generated pages of docs/reference
	$(PYTHON) hack/reference write

dashboards: $(VENV)/.ready ## write the dashboards of the chart
	$(PYTHON) hack/dashboards write

unit: ## the unit tests: no cluster, no server, two minutes
	@command -v python3 >/dev/null || hack/apt install python3 python3-venv
	hack/twice unit hack/unit

rollouts: $(VENV)/.ready ## whole rollouts in the operator's simulator, two minutes
	hack/twice $@ pytest tests/rollouts -n "$${UNIT_PROCESSES:-auto}"

service: $(VENV)/.ready ## data plane, SDK and policy servers as processes, on real PostgreSQL, NATS, Weaviate and S3, four minutes
	hack/twice $@ pytest tests/service -n "$${SERVICE_PROCESSES:-3}" --dist loadfile

pages: $(VENV)/.ready ## the console's pages in a real Chromium, one minute; skipped with a reason where there is none
	hack/twice pages hack/pages

ranks: $(VENV)/.ready ## training processes that are killed, stopped and starved, two minutes
	hack/twice $@ pytest tests/ranks -n "$${RANKS_PROCESSES:-2}"

learn: $(VENV)/.ready ## each algorithm learns a small task, and others' checks of the worlds pass, five minutes
	hack/twice $@ pytest tests/learning -n "$${UNIT_PROCESSES:-auto}" --dist loadfile
	PYTHONPATH=hack $(PYTHON) -m bench.judges environments

gpu: $(VENV)/.ready ## the trainer on this machine's GPU, ten minutes; skipped with a reason where there is none
	DEVICE=$(DEVICE) pytest tests/gpu

api: $(VENV)/.ready ## against real etcds, kube-apiservers and controllers of training, seven minutes
	hack/twice $@ pytest tests/api -n "$${API_PROCESSES:-3}" --dist loadfile

crash-sweep: $(VENV)/.ready ## the operator dies before and after each API write; KILLS=12: so many by SIGKILL
	@PYTHONPATH=hack $(PYTHON) -m testing.operators.$(if $(KILLS),process_kills --kills $(KILLS),crash_sweep)

e2e: $(VENV)/.ready ## real nodes, pods and traffic; KEEP=1 keeps the cluster; BACKEND=job,…: those backends alone; TLS=1: by TLS
	@trap '[ "$$KEEP" = 1 ] || python3 hack/cluster down' EXIT; \
	$(if $(TLS),export VALUES=hack/cluster/values.yaml:hack/cluster/values-tls.yaml;) \
	processes="-n $${E2E_PROCESSES:-2}"; \
	$(if $(BACKEND),pytest tests/e2e/test_training_backends.py $$processes,hack/twice e2e pytest tests/e2e --ignore tests/e2e/test_uninstall.py $$processes && hack/twice uninstall pytest tests/e2e/test_uninstall.py)

argocd: $(VENV)/.ready ## Argo CD syncs the examples and sees a rollout; builds it first, ten minutes; PATIENCE=3: busy machine
	PATIENCE=$(or $(PATIENCE),1) pytest tests/argocd

flux: $(VENV)/.ready ## Flux applies the example and sees a rollout; builds it first, five minutes; PATIENCE=3: busy machine
	PATIENCE=$(or $(PATIENCE),1) pytest tests/flux
loki: $(VENV)/.ready ## logs through a collector into a real Loki and out again, and traces; builds both, ten minutes
	pytest tests/loki

audit: $(VENV)/.ready ## known vulnerabilities of what images and programs are made of; asks public databases
	hack/audit

check-manifests: $(VENV)/.ready ## kubeconform and kube-score over the chart and what the operator makes; builds them once, a minute
	@PYTHONPATH=hack $(PYTHON) -m testing.manifests

crds: $(VENV)/.ready ## write crds/*.yaml from the models
	$(PYTHON) -m learnloop_api.crd write crds

lock: ## pin requirements/*.txt anew
	hack/lock

judges: $(VENV)/.ready ## suites that others made over what is served, shipped and rendered, an hour; ONLY=name,…: some
	@PYTHONPATH=hack $(PYTHON) -m bench.judges $(ONLY)

bench-failover: $(VENV)/.ready ## how long nobody leads when the leader ends, is killed, or is stopped
	@$(PYTHON) -m bench.operator.failover

bench-statistics: $(VENV)/.ready ## how often rollouts err and how soon they are right, beside a polled t-test
	@$(PYTHON) -m bench.statistics

bench-rollback: $(VENV)/.ready ## from a breach to weight 0 on a real cluster, beside Flagger and Argo Rollouts; TLS=1: by TLS, too; root, 30 minutes
	@PYTHONPATH=hack $(PYTHON) -m bench.rollback

bench-loop: $(VENV)/.ready ## four agents by YAML alone turn five times on a real cluster; root, about an hour; EPISODES=10000: one, of long logs
	@PYTHONPATH=hack $(PYTHON) -m bench.loop $(TURNS)

bench-operator: $(VENV)/.ready ## 1,000 ModelDeployments, beside a plain Kopf operator
	@PYTHONPATH=hack $(PYTHON) -m bench.operator

bench-scale: $(VENV)/.ready ## the operator with 500 nodes and 10,000 pods that kwok plays; NODES=, AGENTS=: others
	@PYTHONPATH=hack $(PYTHON) -m bench.scale $(if $(NODES),--nodes $(NODES)) $(if $(AGENTS),--agents $(AGENTS)) $(if $(PODS),--pods $(PODS)) $(ARGS)

cluster: ## start it (GATEWAY=1 adds Contour and Envoy)
	python3 hack/cluster up

cluster-down: ## stop it and remove what it made; programs and images are kept
	python3 hack/cluster down

remove: ## all that was brought here: cluster, images, programs, and Debian packages that were new
	@hack/remove

cold-rehearsal: ## make demo (TARGET=unit, test: that) as on a machine that never saw the project; root
	@hack/cold-rehearsal $(or $(TARGET),demo)

.PHONY: release
release: $(VENV)/$(if $(wildcard $(VENV)/.ready),.ready,.light) ## wheels, chart, Krew's manifest, in dist/release; ARGS="--images --key FILE": more
	@$(PYTHON) hack/release $(ARGS)

.PHONY: release-rehearsal
release-rehearsal: $(VENV)/.ready ## a release in a registry of this machine, an install from there, a promoted model; root, half an hour
	@trap '[ "$$KEEP" = 1 ] || python3 hack/cluster down' EXIT; python3 hack/cluster up >/dev/null && $(PYTHON) hack/release_rehearsal

images: ## build the images whose inputs changed and load them
	python3 hack/images build

bench-memory: $(VENV)/.ready ## recall and stores through HTTP, beside scoring everything; TLS=1: by TLS, too
	@PYTHONPATH=hack $(PYTHON) -m bench.memory $(if $(TLS),--tls)

bench-recall: $(VENV)/.ready ## recall of the evidence in DIR=… of conversations, beside BM25; MODEL=none: quicker
	@PYTHONPATH=hack $(PYTHON) -m bench.recall "$${DIR:?DIR=: name a directory of conversations}" $(if $(MODEL),--model $(MODEL))

bench-pipeline: $(VENV)/.ready ## experience under load, with every process killed; 20 minutes
	@$(PYTHON) -m bench.pipeline $(ARGS)

bench-gateway: $(VENV)/.ready ## what a gateway adds to the answers of a language model, streams included
	@$(PYTHON) -m bench.gateway

bench-gates: $(VENV)/.ready ## bad models at the gates, identical ones, and suites that fail themselves; ten minutes
	@$(PYTHON) -m bench.gates $(if $(ONLY),--only $(ONLY))

bench-adversary: $(VENV)/.ready ## attacks by class on real servers: who breaks in, wipes, forges or starves it
	@$(PYTHON) -m bench.adversary

bench-gpu: $(VENV)/.ready ## PPO, SAC and GRPO on this machine's GPU and without it, beside Stable-Baselines3 and TRL, 6 minutes
	$(PYTHON) -m bench.gpu $(ARGS)

bench-trainer: $(VENV)/.ready ## training beside Stable-Baselines3, 9 minutes
	$(PYTHON) -m bench.trainer.compare $(PYTHON) "$$(bench/trainer/peer_venv $(PYTHON))"

bench-language: $(VENV)/.ready ## language models of 118,000 parameters learn to use tools, beside TRL; SEEDS=1: fewer
	@OMP_NUM_THREADS=1 $(PYTHON) -m bench.language $(SEEDS)

bench-resume: $(VENV)/.ready ## 100 kills at random moments; POINTS=20: fewer
	@PYTHONPATH=examples/worlds $(PYTHON) -m bench.resume --points $${POINTS:-100} $(if $(ONLY),--only $(ONLY))

clean: ## remove the virtual environment and caches of this checkout
	rm -rf $(VENV) .ruff_cache .pytest_cache .hypothesis .import_linter_cache
