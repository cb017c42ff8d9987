package archtest

import (
	"os/exec"
	"strings"
	"testing"
)

// notLinked names the packages that the product must not link, directly or indirectly, with everything below them.
var notLinked = map[string]string{
	"go.etcd.io/etcd/server/v3":               "etcd's server is for tests; it doubles the size and the start time",
	"testing":                                 "not in the product",
	module + "pkg/coord/coordtest":            "for tests",
	module + "pkg/kvstore/internal/storetest": "for tests",
	module + "internal/e2e/testenv":           "for tests",
	module + "internal/release":               "it packs the product and is no part of it",
	module + "internal/manpage":               "a release has manual pages already",
	module + "pkg/rpc":                        "for workers in Go; the launcher does not use it",
}

// TestDependencies asks go which packages the product links.
func TestDependencies(t *testing.T) {
	t.Parallel()
	// The adapter to etcd is listed too, so that its dependencies count even if the command did not use it.
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
				t.Errorf("the product links %s: %s", pkg, why)
			}
		}
	}
}
