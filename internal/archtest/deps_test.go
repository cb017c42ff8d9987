package archtest

import (
	"os/exec"
	"strings"
	"testing"
)

// notLinked says which packages, and all below them, the product must not hold, in whatever way they would come in.
var notLinked = map[string]string{
	"go.etcd.io/etcd/server/v3":               "etcd's server is for tests; it doubles the size and the start time",
	"testing":                                 "not in the product",
	module + "pkg/coord/coordtest":            "for tests",
	module + "pkg/kvstore/internal/storetest": "for tests",
	module + "internal/e2e/testenv":           "for tests",
	module + "internal/release":               "made of the product, not part of it",
	module + "internal/manpage":               "manual pages are made beforehand",
	module + "pkg/rpc":                        "for workers in Go; the launcher does not call them",
}

// TestDependencies asks go what the product is linked from.
func TestDependencies(t *testing.T) {
	t.Parallel()
	// The adapter to etcd itself, so that what it brings shows even where the command does not use it.
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/elasticrun", "./pkg/coord/etcd")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := strings.Fields(string(out))
	if len(packages) < 100 {
		t.Errorf("go list found %d packages", len(packages))
	}
	for _, pkg := range packages {
		for banned, why := range notLinked {
			if within(pkg, banned) {
				t.Errorf("the product holds %s: %s", pkg, why)
			}
		}
	}
}
