# Go 1.26, make and python3 are enough for `make run` and `make test`; go fetches the modules.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# How much of the soak tests to run: 1 is all of them (about an hour), 0.1 a tenth.
SOAK    ?= 1

LINT := $(GO) tool -modfile=internal/tools/go.mod golangci-lint

# The race detector needs cgo, and so a C compiler with its headers.
RACE = $(shell [ "$$($(GO) env CGO_ENABLED)" = 1 ] && printf '\#include <stdlib.h>\n' | $$($(GO) env CC) -E - >/dev/null 2>&1 && echo -race)

.DEFAULT_GOAL := build

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

.PHONY: build
build: ## build ./elasticrun, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)' -o elasticrun ./cmd/elasticrun

.PHONY: release
release: ## make archives and wheels for every platform, and their checksums, in dist
	rm -rf dist
	$(GO) run ./cmd/release -version '$(VERSION)'

.PHONY: man
man: ## make the manual pages alone, in dist/man/man1
	$(GO) run ./cmd/release -version '$(VERSION)' -man

.PHONY: run
run: build ## build it and train on real data with 4 workers, one of which is killed on the way
	examples/digits/run.sh ./elasticrun

.PHONY: test
test: ## run every test; what this machine lacks for some of them is said by go test -v
	$(GO) vet ./...
	cd internal/e2e/manifests && $(GO) vet ./... && $(GO) test -count=1 ./... # go does not know that the examples are part of it
	@race='$(RACE)'; [ -n "$$race" ] || echo 'no C compiler: tests run without the race detector'; \
	set -x; $(GO) test $$race -timeout 10m ./...

.PHONY: check
check: ## lint, and build for the other platform
	$(LINT) run
	cd internal/e2e/manifests && $(GO) tool -modfile=../../tools/go.mod golangci-lint run
	CGO_ENABLED=0 GOOS=darwin $(GO) build ./...
	@if command -v shellcheck >/dev/null; then set -x; \
	shellcheck scripts/*.sh examples/*/*.sh examples/slurm/*.sbatch .ci/run && shellcheck -s bash cmd/elasticrun/completion.bash; fi

.PHONY: soak
soak: ## run what takes long: fuzzing, thousands of schedules, hundreds of kills (SOAK=0.1 for a tenth)
	scripts/soak.sh $(SOAK) $(RACE)

.PHONY: bench
bench: build ## measure against torchrun, torch's store and bare gRPC, side by side, and how long changes of nodes take
	scripts/bench.py ./elasticrun
	$(GO) run ./cmd/storebench
	$(GO) test -run '^$$' -bench . -benchtime 5x ./internal/e2e/scenario
	$(GO) test -run '^$$' -bench 'Func|Init' -benchtime 20x ./pkg/rpc

.PHONY: cover
cover: ## run every test and show the coverage of each package's functions
	$(GO) test -timeout 10m -coverpkg=./... -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out

.PHONY: clean
clean: ## remove what the other targets made here
	rm -rf elasticrun cover.out dist
