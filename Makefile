# `make run` and `make test` need Go 1.26, make and python3. go downloads the modules.

GO      ?= go
# The version, such as 1.2.3. By default it is that of git's tag, or of the way to the next release in CHANGELOG.md.
VERSION ?=
# The flags of a build. With them all, programs and tests share compiled packages.
BUILD    = CGO_ENABLED=0 $(GO)
FLAGS   := -trimpath -buildvcs=false
RELEASE  = $(BUILD) run $(FLAGS) ./cmd/release -version '$(VERSION)'
# The scale of the soak tests: 1 runs all of them (about an hour), 0.1 a tenth.
SOAK    ?= 1

LINT := $(GO) tool -modfile=internal/tools/go.mod golangci-lint

# The race detector needs cgo, which needs a C compiler and its headers.
RACE = $(shell [ "$$($(GO) env CGO_ENABLED)" = 1 ] && printf '\#include <stdlib.h>\n' | $$($(GO) env CC) -E - >/dev/null 2>&1 && echo -race)

# How many packages are tested at once. Tests often wait, so two processors are busier with three; more have enough.
PACKAGES = $(shell [ "$$(nproc 2>/dev/null)" -le 2 ] 2>/dev/null && echo -p 3)

.DEFAULT_GOAL := build

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

.PHONY: build
build: ## build ./elasticrun, one static binary
	version=$$($(RELEASE) version) && $(BUILD) build $(FLAGS) -ldflags "-s -w -X main.version=$$version" -o elasticrun ./cmd/elasticrun

.PHONY: wheel
wheel: ## make this machine's wheel in dist; pip install dist/*.whl
	rm -f dist/*.whl
	$(RELEASE) -host wheel

.PHONY: deb
deb: ## make this machine's Debian package in dist
	rm -f dist/*.deb
	$(RELEASE) -host deb

.PHONY: release
release: ## make archives, wheels, Debian packages, a container image and checksums for every platform in dist
	rm -rf dist
	$(RELEASE)

.PHONY: man
man: ## make only the manual pages, in dist/man/man1
	$(RELEASE) man

.PHONY: run
run: build ## build elasticrun, train on real data with 4 workers and kill one of them
	examples/digits/run.sh ./elasticrun

# -vet=off, because make check runs all of go vet on the same packages, which takes half a minute of CPU time. The flags
# of the first line are those of the build, so that both share compiled packages. With -trimpath, checkouts in different
# folders share them too. Without GORACE every program with the race detector sleeps for a second at its end.
.PHONY: test
test: ## run every test; go test -v gives the reasons for skipped tests
	cd internal/e2e/manifests && CGO_ENABLED=0 $(GO) test -trimpath -vet=off -count=1 ./... # -count=1: go's test cache ignores changes of the examples
	@race='$(RACE)'; [ -n "$$race" ] || echo 'no C compiler: tests run without the race detector'; \
	set -x; GORACE=atexit_sleep_ms=10 $(GO) test $$race $(FLAGS) $(PACKAGES) -ldflags=-s -vet=off -timeout 10m ./...

.PHONY: check
check: ## lint, and build for darwin
	$(LINT) run
	cd internal/e2e/manifests && $(GO) tool -modfile=../../tools/go.mod golangci-lint run
	CGO_ENABLED=0 GOOS=darwin $(GO) build ./...
	@if command -v shellcheck >/dev/null; then set -x; \
	shellcheck scripts/*.sh examples/*/*.sh examples/slurm/*.sbatch internal/release/debian/p*rm internal/release/testdata/*.sh .ci/run && shellcheck -s bash cmd/elasticrun/completion.bash; fi

.PHONY: soak
soak: ## run the long tests: fuzzing, random schedules, hundreds of kills (SOAK=0.1 for a tenth)
	scripts/soak.sh $(SOAK) $(RACE)

.PHONY: bench
bench: build ## compare with torchrun, torch's store and bare gRPC; measure membership changes
	scripts/bench.py ./elasticrun
	$(GO) run ./cmd/storebench
	$(GO) test -run '^$$' -bench . -benchtime 5x ./internal/e2e/scenario
	$(GO) test -run '^$$' -bench 'Func|Init' -benchtime 20x ./pkg/rpc

.PHONY: cover
cover: ## run every test and print the coverage of each function
	$(GO) test -timeout 10m -coverpkg=./... -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out

.PHONY: clean
clean: ## remove the files that the other targets made here
	rm -rf elasticrun cover.out dist
