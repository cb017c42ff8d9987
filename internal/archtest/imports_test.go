package archtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/elasticrun/elasticrun/"

// rule lists the packages that the files of one package may import besides the standard library. Tests may import more.
type rule struct {
	ours   []string // packages of this module
	theirs []string // modules of others
	// pure means that the package decides and does nothing: it has neither network, files and processes nor a clock.
	pure bool
	// forTests means that only tests import the package, so it may import testing.
	forTests bool
	why      string
}

// onlyIn names the only package that may import a module of others, tests included.
var onlyIn = map[string]struct{ pkg, why string }{
	"go.etcd.io/etcd":              {"pkg/coord/etcd", "the rest of the program sees a coordination store"},
	"go.etcd.io/raft":              {"pkg/coord/replica", "the rest of the program sees a replica, whose messages are checked"},
	"go.etcd.io/bbolt":             {"pkg/coord", "the coordination store alone keeps data on disk"},
	"github.com/prometheus":        {"internal/status", "metrics are one view of a status"},
	"github.com/spf13/viper":       {"internal/config", "the rest of the program sees resolved values"},
	"github.com/spf13/cobra":       {"cmd/elasticrun", "only the command parses a command line"},
	"github.com/fxamacker/cbor/v2": {"pkg/rpc", "one file encodes the values of calls"},
	"github.com/shirou/gopsutil/v3": {
		"pkg/procs",
		"one file samples processes, so that the library can be replaced there",
	},
}

func TestImports(t *testing.T) {
	report(t, checkImports(repository(t)))
}

// TestTablesNameWhatExists catches a table whose entry names a package that has moved: such an entry would ban nothing.
func TestTablesNameWhatExists(t *testing.T) {
	packages := map[string]bool{}
	for _, f := range repository(t) {
		packages[f.pkg] = true
	}
	var named []string
	for pkg, r := range rules {
		named = append(append(named, pkg), r.ours...)
	}
	for _, only := range onlyIn {
		named = append(named, only.pkg)
	}
	for banned := range notLinked {
		if own, ok := strings.CutPrefix(banned, module); ok {
			named = append(named, own)
		}
	}
	for _, pkg := range named {
		if !packages[pkg] {
			t.Errorf("a table in internal/archtest names %s, which has no Go file", pkg)
		}
	}
}

// checkImports returns a line for each import that no rule allows.
func checkImports(files []file) []string {
	var bad []string
	for _, f := range files {
		r, ok := rules[f.pkg]
		if !ok {
			bad = append(bad, fmt.Sprintf("package %s has no rule: add one to the table in internal/archtest", f.pkg))
			continue
		}
		if r.pure && !f.test && len(f.clocks) > 0 {
			bad = append(bad, fmt.Sprintf("%s:%d reads a clock: %s", f.name, f.clocks[0], r.why))
		}
		for _, imported := range f.imports {
			if why := refuse(f, r, imported); why != "" {
				bad = append(bad, fmt.Sprintf("%s imports %s: %s", f.name, imported, why))
			}
		}
	}
	return bad
}

// refuse returns why the file may not import a package, or nothing if it may.
func refuse(f file, r rule, imported string) string {
	for owner, only := range onlyIn {
		if within(imported, owner) && f.pkg != only.pkg {
			return fmt.Sprintf("only %s may: %s", only.pkg, only.why)
		}
	}
	first, _, _ := strings.Cut(imported, "/")
	own, isOwn := strings.CutPrefix(imported, module)
	allowed := false
	switch {
	case r.pure && !f.test && slices.Contains(outside, imported):
		return "the package decides and does nothing: " + r.why
	case isOwn:
		// A test may bring real neighbors together, but no test imports the command.
		allowed = slices.Contains(r.ours, own) || f.test && own != "cmd/elasticrun"
	case f.test || !strings.Contains(first, "."): // the standard library
		allowed = imported != "testing" || f.test || r.forTests
	default:
		allowed = slices.ContainsFunc(r.theirs, func(m string) bool { return within(imported, m) })
	}
	if allowed {
		return ""
	}
	return r.why
}

// outside lists packages of which pure packages import none: what reaches the system, waits or runs beside others.
var outside = []string{
	"context", "net", "net/http", "os", "os/exec", "os/signal", "runtime", "sync", "syscall", module + "internal/boottime",
}

// within reports whether a package belongs to a module (or folder).
func within(pkg, module string) bool {
	return pkg == module || strings.HasPrefix(pkg, module+"/")
}

// TestPureReadsNoClock checks that a pure package that reads a clock is found.
func TestPureReadsNoClock(t *testing.T) {
	source := "package a\n\nimport \"time\"\n\nvar began = time.Now()\n"
	for name, want := range map[string]int{
		"pkg/rdzv/elastic/rounds/a.go": 1, "pkg/rdzv/elastic/rounds/a_test.go": 0, "pkg/rdzv/elastic/a.go": 0,
	} {
		files, err := read(fstest.MapFS{name: {Data: []byte(source)}})
		if err != nil {
			t.Fatal(err)
		}
		if got := checkImports(files); len(got) != want {
			t.Errorf("%s: %q, want %d lines", name, got, want)
		}
	}
}

// TestCheckImports runs the check on modules that keep the rules and modules that break them.
func TestCheckImports(t *testing.T) {
	for _, tc := range []struct{ name, file, imports, want string }{
		{name: "down", file: "pkg/agent/a.go", imports: module + "pkg/rdzv"},
		{name: "std", file: "pkg/kvstore/a.go", imports: "net/http"},
		{name: "up", file: "pkg/rdzv/a.go", imports: module + "pkg/agent", want: "a rendezvous knows stores and ranks, not processes"},
		{name: "sideways", file: "pkg/procs/a_other.go", imports: module + "pkg/kvstore", want: "it starts and stops processes without knowing why"},
		{name: "an example", file: "examples/paramserver/a.go", imports: module + "pkg/rpc"},
		{name: "an example of more", file: "examples/paramserver/a.go", imports: module + "pkg/kvstore", want: "the example shows that a worker needs package rpc alone"},
		{name: "a library", file: "pkg/kvstore/a.go", imports: "github.com/spf13/pflag", want: "the store serves bytes to any client"},
		{name: "viper", file: "cmd/elasticrun/a.go", imports: "github.com/spf13/viper", want: "only internal/config may: the rest of the program sees resolved values"},
		{name: "cobra in a test", file: "pkg/agent/a_test.go", imports: "github.com/spf13/cobra", want: "only cmd/elasticrun may: only the command parses a command line"},
		{name: "gopsutil", file: "pkg/agent/a.go", imports: "github.com/shirou/gopsutil/v3/process", want: "only pkg/procs may: one file samples processes, so that the library can be replaced there"},
		{name: "a test with a neighbor", file: "pkg/kvstore/a_test.go", imports: module + "pkg/procs"},
		{name: "a test library", file: "pkg/kvstore/a_test.go", imports: "go.uber.org/goleak"},
		{name: "testing in the product", file: "pkg/kvstore/a.go", imports: "testing", want: "the store serves bytes to any client"},
		{name: "testing in a package for tests", file: "pkg/coord/coordtest/a.go", imports: "testing"},
		{name: "a conformance suite in the product", file: "pkg/coord/a.go", imports: module + "pkg/coord/coordtest", want: "the coordination store holds keys and sessions, and knows nothing of jobs"},
		{name: "testenv in the product", file: "pkg/kvstore/a.go", imports: module + "internal/e2e/testenv", want: "the store serves bytes to any client"},
		{name: "a context in a pure package", file: "pkg/rdzv/elastic/rounds/a.go", imports: "context", want: "the package decides and does nothing: it decides; package elastic has the clock, the store and the agent"},
		{name: "a context in its test", file: "pkg/rdzv/elastic/rounds/a_test.go", imports: "context"},
		{name: "an unknown package", file: "pkg/utils/a.go", imports: "os", want: "package pkg/utils has no rule: add one to the table in internal/archtest"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files, err := read(fstest.MapFS{tc.file: {Data: []byte("package a\n\nimport _ \"" + tc.imports + "\"\n")}})
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			if tc.want != "" && !strings.HasPrefix(tc.want, "package ") {
				tc.want = tc.file + " imports " + tc.imports + ": " + tc.want
			}
			if tc.want != "" {
				want = []string{tc.want}
			}
			if diff := cmp.Diff(want, checkImports(files)); diff != "" {
				t.Errorf("complaints (-want +got):\n%s", diff)
			}
		})
	}
}
