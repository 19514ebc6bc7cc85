# Every task of this repository has one command here. `make help` lists them.
#
# ARGS="…" is passed on to the program a target runs: make demo ARGS=--stay
# YES=1 installs what is missing without asking. BENCH=elastic names another experiment than proxy.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
export CARGO_TARGET_DIR ?= $(CURDIR)/target
RELEASE := $(CARGO_TARGET_DIR)/release
SETUP := scripts/setup.sh

.PHONY: help demo test check bench results dist soak fuzz setup clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## run a small bookstore mesh of two nodes here for a minute, as root in pods (ARGS=--stay: until Ctrl-C)
	@$(SETUP) build
	@cargo build --locked --package heddle --package heddle-lab-program --package bookstore
	@PATH="$(CARGO_TARGET_DIR)/debug:$$PATH" heddle-lab demo $(ARGS)

test: ## everything that CI runs: format, lints, docs, tests, instruction counts, what a request costs, demo
	@$(SETUP) build test
	@scripts/test.sh

check: ## make test, and the dependencies' licences and advisories: before a release
	@$(SETUP) build test deny
	@scripts/test.sh deny

bench: ## measure the proxy beside its peers, which it installs (ARGS=--quick: shorter; BENCH=elastic, elastic-between-nodes, mtls, grpc, link, identities, concurrency, and as root node-memory, node-cpu, node-qps, node-latency)
	@$(SETUP) build
	@cargo build --locked --release --package heddle --package heddle-lab-program
	@PATH="$(RELEASE):$$PATH" heddle-lab bench $(or $(BENCH),proxy) $(ARGS)

results: ## every figure that README and docs quote, in parts that are not measured twice: as root, three hours (ARGS="--only NAME", --again, --draft --quick; PUBLISHED=1: windows of 60 s)
	@$(SETUP) build
	@cargo build --locked --release --package heddle --package heddle-lab-program
	@"$(RELEASE)/heddle-lab" bench results $(ARGS)

dist: ## stripped static binaries with their checksums, in dist/
	@$(SETUP) build
	@scripts/dist.sh

soak: ## every slow proof, one after the other: of scripts/soak.txt, some as root (ARGS=NAME: those with it in their name)
	@$(SETUP) build
	@scripts/soak.sh $(ARGS)

fuzz: ## fuzz every parser, by the nightly compiler (ARGS=SECONDS for each target)
	@$(SETUP) build fuzz
	@scripts/fuzz.sh $(ARGS)

setup: ## install what `make demo` and `make check` need
	@$(SETUP) build test deny

clean: ## remove what was built
	@rm -rf dist
	@if command -v cargo >/dev/null; then cargo clean; fi
