# Two commands do everything on a fresh machine: `make demo` and `make test`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
PYTHON := $(VENV)/bin/python
READY ?= $(VENV)/.ready
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# Compiled files cut the time of the operator's imports to a third.
unexport PYTHONDONTWRITEBYTECODE
# Tests run as many processes as cores: a second thread of a process would only wait, and busily.
unit rollouts service ranks learn api: export OMP_NUM_THREADS ?= 1

.PHONY: help demo test check lint docs reference dashboards unit rollouts service pages ranks learn gpu api crash-sweep e2e argocd flux loki crds lock bench-failover bench-statistics bench-memory bench-recall bench-pipeline bench-adversary bench-rollback bench-loop bench-operator bench-scale cluster cluster-down images remove cold-rehearsal clean bench-trainer bench-gpu bench-worlds bench-resume bench-gateway bench-gates audit check-manifests judges

help: ## this list
	@hack/help Makefile

$(VENV)/.ready: requirements/dev.txt pyproject.toml hack/venv
	hack/venv $(VENV)

$(VENV)/.light: requirements/dev.txt pyproject.toml hack/venv
	WITHOUT_TORCH=1 hack/venv $(VENV)

.PHONY: try
try: ## run the loop as processes of this machine: no cluster, no Docker, no root; three minutes the first time
	@hack/learnloop try

demo: ## run one turn of the loop on a new local Kubernetes; CONTEXT=name: on your cluster
	@python3 hack/demo

.PHONY: demo-language
demo-language: ## the same for a language model that learns to use tools
	@python3 hack/demo_language

test: $(VENV)/.ready ## all checks, half an hour on two cores
	@stage() { TIMEFORMAT="make $$*: %0R s; of processors %0U s by programs, %0S s by the kernel"; \
		time $(MAKE) --no-print-directory "$$@"; }; \
	set -e; stage --jobs=3 --output-sync=target lint pages ranks; \
	stage unit; stage rollouts; stage --jobs=2 --output-sync=target service api; \
	log=$$(mktemp); hack/idle $(MAKE) --no-print-directory learn >$$log 2>&1 & learn=$$!; \
	trap 'kill -- -$$learn 2>/dev/null || true; rm -f $$log' EXIT; \
	stage e2e; status=0; wait $$learn || status=$$?; cat $$log; exit $$status  # learning only computes; e2e mostly waits

check: ## make lint and make unit, three minutes; skips tests of torch (5 GB) until `make test` installs it
	@$(MAKE) --no-print-directory lint unit READY=$(VENV)/$(if $(wildcard $(VENV)/.ready),.ready,.light)

lint: $(READY) ## ruff, mypy --strict, import contracts, budgets of size and language, generated files, the documentation
	ruff check .
	ruff format --check .
	mypy $(if $(findstring light,$(READY)),$(addprefix -p learnloop_,api common operator environments serving gateway gates dataplane sdk))
	lint-imports
	$(PYTHON) hack/house
	$(PYTHON) -m learnloop_api.crd check crds
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

docs: $(VENV)/.ready ## build the documentation site in dist/site
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict

reference: $(VENV)/.ready ## write the generated pages of docs/reference
	$(PYTHON) hack/reference write

dashboards: $(VENV)/.ready ## write the chart's dashboards
	$(PYTHON) hack/dashboards write

unit: ## unit tests: no cluster, no server, two minutes
	@command -v python3 >/dev/null || hack/apt install python3 python3-venv
	hack/twice unit hack/unit

rollouts: $(VENV)/.ready ## whole rollouts in the operator's simulator, two minutes
	hack/twice $@ pytest tests/rollouts -n "$${UNIT_PROCESSES:-auto}"

service: $(VENV)/.ready ## data plane, SDK and policy servers with real PostgreSQL, NATS, Weaviate and S3, four minutes
	hack/twice $@ pytest tests/service -n "$${SERVICE_PROCESSES:-3}" --dist loadfile

pages: $(VENV)/.ready ## the console's pages in a real Chromium, one minute; skipped without a Chromium
	hack/twice pages hack/pages

ranks: $(VENV)/.ready ## training processes under kill, stop and lack of processor time, two minutes
	hack/twice $@ pytest tests/ranks -n "$${RANKS_PROCESSES:-2}"

learn: $(VENV)/.ready ## each algorithm learns a small task, and others' checks of the worlds pass, five minutes
	hack/twice $@ pytest tests/learning -n "$${UNIT_PROCESSES:-auto}" --dist loadfile
	PYTHONPATH=hack $(PYTHON) -m bench.judges environments

gpu: $(VENV)/.ready ## the trainer on this machine's GPU, ten minutes; skipped without a GPU
	DEVICE=$(DEVICE) pytest tests/gpu

api: $(VENV)/.ready ## the operator with real etcds, kube-apiservers and training controllers, seven minutes
	hack/twice $@ pytest tests/api -n "$${API_PROCESSES:-3}" --dist loadfile

crash-sweep: $(VENV)/.ready ## kill the operator before and after each API write; KILLS=12: 12 times by SIGKILL
	@PYTHONPATH=hack $(PYTHON) -m testing.operators.$(if $(KILLS),process_kills --kills $(KILLS),crash_sweep)

e2e: $(VENV)/.ready ## end-to-end tests on real nodes; KEEP=1: keep the cluster; BACKEND=job,…: only these backends; TLS=1: with TLS
	@trap '[ "$$KEEP" = 1 ] || python3 hack/cluster down' EXIT; \
	$(if $(TLS),export VALUES=hack/cluster/values.yaml:hack/cluster/values-tls.yaml;) \
	processes="-n $${E2E_PROCESSES:-2}"; \
	$(if $(BACKEND),pytest tests/e2e/test_training_backends.py $$processes,hack/twice e2e pytest tests/e2e --ignore tests/e2e/test_uninstall.py $$processes && hack/twice uninstall pytest tests/e2e/test_uninstall.py)

argocd: $(VENV)/.ready ## build Argo CD and sync the examples with it, ten minutes; PATIENCE=3: for a busy machine
	PATIENCE=$(or $(PATIENCE),1) pytest tests/argocd

flux: $(VENV)/.ready ## build Flux and apply the example with it, five minutes; PATIENCE=3: for a busy machine
	PATIENCE=$(or $(PATIENCE),1) pytest tests/flux

loki: $(VENV)/.ready ## build Loki and a collector, and query logs and traces there, ten minutes
	pytest tests/loki

audit: $(VENV)/.ready ## look up known vulnerabilities of all dependencies in public databases
	hack/audit

check-manifests: $(VENV)/.ready ## kubeconform and kube-score over manifests of the chart and the operator, a minute
	@PYTHONPATH=hack $(PYTHON) -m testing.manifests

crds: $(VENV)/.ready ## write crds/*.yaml from the models
	$(PYTHON) -m learnloop_api.crd write crds

lock: ## pin requirements/*.txt again
	hack/lock

judges: $(VENV)/.ready ## conformance suites of other projects, an hour; ONLY=name,…: only these
	@PYTHONPATH=hack $(PYTHON) -m bench.judges $(ONLY)

bench-failover: $(VENV)/.ready ## time without a leader after the leader ends, is killed, or is stopped
	@$(PYTHON) -m bench.operator.failover

bench-statistics: $(VENV)/.ready ## errors and speed of rollout decisions, compared with a polled t-test
	@$(PYTHON) -m bench.statistics

bench-rollback: $(VENV)/.ready ## time from a breach to weight 0, compared with Flagger and Argo Rollouts; TLS=1: with TLS, too; root, 30 minutes
	@PYTHONPATH=hack $(PYTHON) -m bench.rollback

bench-loop: $(VENV)/.ready ## five turns of four agents on a real cluster; root, an hour; EPISODES=10000: one agent with long logs
	@PYTHONPATH=hack $(PYTHON) -m bench.loop $(TURNS)

bench-operator: $(VENV)/.ready ## the operator with 1,000 ModelDeployments, compared with a plain Kopf operator
	@PYTHONPATH=hack $(PYTHON) -m bench.operator

bench-scale: $(VENV)/.ready ## the operator with 500 nodes and 10,000 pods simulated by kwok; NODES=, AGENTS=: other numbers
	@PYTHONPATH=hack $(PYTHON) -m bench.scale $(if $(NODES),--nodes $(NODES)) $(if $(AGENTS),--agents $(AGENTS)) $(if $(PODS),--pods $(PODS)) $(ARGS)

cluster: ## start the local cluster; GATEWAY=1: with Contour and Envoy
	python3 hack/cluster up

cluster-down: ## stop the local cluster and remove its data; keep programs and images
	python3 hack/cluster down

remove: ## remove everything that was installed: cluster, images, programs, Debian packages
	@hack/remove

cold-rehearsal: ## make demo as on a new machine; TARGET=unit or test: that target; root
	@hack/cold-rehearsal $(or $(TARGET),demo)

.PHONY: release
release: $(VENV)/$(if $(wildcard $(VENV)/.ready),.ready,.light) ## write wheels, chart and Krew's manifest to dist/release; ARGS="--images --key FILE": images and signatures, too
	@$(PYTHON) hack/release $(ARGS)

.PHONY: release-rehearsal
release-rehearsal: $(VENV)/.ready ## push a release to a local registry and install it from there; root, half an hour
	@trap '[ "$$KEEP" = 1 ] || python3 hack/cluster down' EXIT; python3 hack/cluster up >/dev/null && $(PYTHON) hack/release_rehearsal

images: ## build changed images and load them
	python3 hack/images build

bench-memory: $(VENV)/.ready ## speed of recall and stores by HTTP; TLS=1: with TLS, too
	@PYTHONPATH=hack $(PYTHON) -m bench.memory $(if $(TLS),--tls)

bench-recall: $(VENV)/.ready ## quality of recall on conversations in DIR=…, compared with BM25; MODEL=none: quicker
	@PYTHONPATH=hack $(PYTHON) -m bench.recall "$${DIR:?DIR=: name a directory of conversations}" $(if $(MODEL),--model $(MODEL))

bench-pipeline: $(VENV)/.ready ## loss and latency of experience under load and kills, 20 minutes
	@$(PYTHON) -m bench.pipeline $(ARGS)

bench-gateway: $(VENV)/.ready ## latency that the gateway adds to a language model's answers
	@$(PYTHON) -m bench.gateway

bench-gates: $(VENV)/.ready ## verdicts of the gates on bad models, identical models and broken suites, ten minutes
	@$(PYTHON) -m bench.gates $(if $(ONLY),--only $(ONLY))

bench-adversary: $(VENV)/.ready ## attacks on real servers, by class
	@$(PYTHON) -m bench.adversary

bench-gpu: $(VENV)/.ready ## PPO, SAC and GRPO with and without this machine's GPU, compared with Stable-Baselines3 and TRL, 6 minutes
	$(PYTHON) -m bench.gpu $(ARGS)

bench-trainer: $(VENV)/.ready ## training speed and returns, compared with Stable-Baselines3, 9 minutes
	$(PYTHON) -m bench.trainer.compare $(PYTHON) "$$(bench/trainer/peer_venv $(PYTHON))"

bench-worlds: $(VENV)/.ready ## 16 worlds next to Stable-Baselines3 at equal steps; SEEDS=, ONLY=CartPole,Taxi: fewer; NIGHTLY=1: of hours, too
	@PYTHONPATH=.:$(subst $(eval) ,:,$(wildcard examples/worlds examples/worlds/*/)) $(PYTHON) -m bench.worlds --seeds $(or $(SEEDS),5) $(if $(ONLY),--only $(ONLY)) $(if $(NIGHTLY),--nightly)

bench-language: $(VENV)/.ready ## training of tiny language models, compared with TRL; SEEDS=1: fewer
	@OMP_NUM_THREADS=1 $(PYTHON) -m bench.language $(SEEDS)

bench-resume: $(VENV)/.ready ## resume after 100 kills at random moments; POINTS=20: fewer
	@PYTHONPATH=examples/worlds $(PYTHON) -m bench.resume --points $${POINTS:-100} $(if $(ONLY),--only $(ONLY))

clean: ## remove the virtual environment and caches of this checkout
	rm -rf $(VENV) .ruff_cache .pytest_cache .hypothesis .import_linter_cache
