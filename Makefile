.DEFAULT_GOAL := help
.PHONY: help build test lint bench verify generate fresh clean

GO ?= go

# The name of every test that has a long form holds one of these words.
LONG_TESTS := Long|Soak|Matrix|Crash

help: ## Print this list (the default)
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

build: ## Build bin/apollo
	$(GO) build -trimpath -o bin/apollo ./cmd/apollo

test: ## Vet, then every test in its short form under the race detector: all that CI needs besides lint
	$(GO) vet ./...
	$(GO) test -race -vet=off -timeout=15m ./...

lint: ## Run golangci-lint as pinned in .ci/tools.mod (its first build takes some minutes)
	$(GO) tool -modfile=.ci/tools.mod golangci-lint run ./...

bench: build ## Measure Apollo against this machine's limits; every figure a ratio taken in one run
	./bin/apollo bench

verify: ## Run every test in its long form, shuffled; LONG= runs only those that have one, in their short form
	APOLLO_LONG=$(LONG) $(GO) test -race -vet=off -count=1 -shuffle=on $(if $(LONG),-timeout=6h,-timeout=10m -run='$(LONG_TESTS)') ./...
verify: LONG ?= 1

generate: ## Write the generated documents and schemas anew; CI fails when that changes anything
	$(GO) generate ./...

fresh: ## Clone the last commit into a temporary directory and run the README's commands there
	@set -e; dir=$$(mktemp -d); trap 'chmod -R u+w "$$dir"; rm -rf "$$dir"' EXIT; \
	git clone --quiet . "$$dir/apollo"; cd "$$dir/apollo"; \
	sed -n '/<!-- commands:begin/,/<!-- commands:end/s/^    //p' README.md >"$$dir/commands"; \
	test -s "$$dir/commands"; sh -ex "$$dir/commands"

clean: ## Remove what the other targets made
	rm -rf bin coverage.out
