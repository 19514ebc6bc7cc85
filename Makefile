# Every task of this repository has one command here. `make help` lists them.
#
# ARGS="…" is passed on to the program that a target runs: make demo ARGS=--stay
# YES=1 installs missing programs without asking. BENCH=elastic selects another experiment than proxy.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
export CARGO_TARGET_DIR ?= $(CURDIR)/target
RELEASE := $(CARGO_TARGET_DIR)/release
SETUP := scripts/setup.sh

.PHONY: help demo test test-kubelet test-v2 check bench results dist soak skew fuzz setup clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## run a small bookstore mesh of two nodes on this machine for a minute; as root, in pods (ARGS=--stay: until Ctrl-C)
	@$(SETUP) build
	@cargo build --locked --package heddle --package heddle-lab-program --package bookstore
	@PATH="$(CARGO_TARGET_DIR)/debug:$$PATH" heddle-lab demo $(ARGS)

test: ## run every check that CI runs: format, lints, docs, tests, instruction counts, cost of a request, demo
	@$(SETUP) build test
	@scripts/test.sh

test-kubelet: ## test node QoS with a real kubelet, which is built first from Go modules: some ten minutes; needs root
	@$(SETUP) build kubelet
	@cargo build --locked --package heddle
	@scripts/kubelet.sh "$(CARGO_TARGET_DIR)/debug/heddle"

check: ## run make test, and check the licences and advisories of dependencies: before a release
	@$(SETUP) build test deny
	@scripts/test.sh deny

bench: ## measure the proxy and its peers, which are installed first (ARGS=--quick: shorter; BENCH=elastic, elastic-between-nodes, mtls, grpc, link, identities, discovery, control-scale, concurrency, and as root lazy, node-memory, node-cpu, node-qps, node-latency, crash, qos-cpu, qos-burst, qos-memory, qos-network, qos-proxy, qos-agent)
	@$(SETUP) build
	@cargo build --locked --release --package heddle --package heddle-lab-program
	@PATH="$(RELEASE):$$PATH" heddle-lab bench $(or $(BENCH),proxy) $(ARGS)

results: ## measure every figure that README and docs quote, except parts on record; needs root, takes four and a half hours (ARGS="--only NAME", --again, --draft --quick; PUBLISHED=1: windows of 60 s)
	@$(SETUP) build
	@cargo build --locked --release --package heddle --package heddle-lab-program
	@"$(RELEASE)/heddle-lab" bench results $(ARGS)

dist: ## build stripped static binaries and their checksums in dist/
	@$(SETUP) build
	@scripts/dist.sh

soak: ## run all slow tests of scripts/soak.txt, one after the other; some need root (ARGS=NAME: only tests with NAME in their name)
	@$(SETUP) build
	@scripts/soak.sh $(ARGS)

skew: ## run nodes and control planes of this version beside those of an older one (ARGS=REVISION: which)
	@$(SETUP) build
	@scripts/skew.sh $(ARGS)

fuzz: ## fuzz every parser, with the nightly compiler (ARGS=SECONDS: time for each target)
	@$(SETUP) build fuzz
	@scripts/fuzz.sh $(ARGS)

test-v2: ## run the tests of node QoS on control groups of version 2, in a virtual machine (KERNEL=FILE: another kernel than Debian's)
	@$(SETUP) build v2
	@scripts/test-v2.sh

setup: ## install what `make demo` and `make check` need
	@$(SETUP) build test deny

clean: ## remove all build output
	@rm -rf dist
	@if command -v cargo >/dev/null; then cargo clean; fi
