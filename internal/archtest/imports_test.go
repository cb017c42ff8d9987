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
	// forTests means that only tests import the package, so it may import testing.
	forTests bool
	why      string
}

// rules has an entry for every package. Data flows one way, from the command down to the stores and processes.
var rules = map[string]rule{
	"cmd/elasticrun": {
		ours: []string{
			"internal/backends", "internal/caller", "internal/config", "internal/config/safefile", "internal/doctor",
			"internal/jobs", "internal/launch", "internal/listen", "internal/logging", "internal/logview",
			"internal/plural", "internal/preview", "internal/records", "internal/scheduler", "internal/sdnotify", "internal/seconds",
			"internal/simulate", "internal/status", "internal/storeserver", "internal/telemetry",
			"internal/topology", "pkg/agent", "pkg/coord", "pkg/evidence", "pkg/failure", "pkg/procs", "pkg/procs/guard", "pkg/rdzv",
			"pkg/rdzv/elastic", "pkg/report", "pkg/workerlog",
		},
		theirs: []string{"github.com/spf13/cobra", "github.com/rs/zerolog", "golang.org/x/term"},
		why:    "the command connects the concrete types of all packages; no package imports the command",
	},
	"cmd/storebench": {
		ours:   []string{"pkg/kvstore", "pkg/kvstore/tcpstore"},
		theirs: []string{"golang.org/x/sys"},
		why:    "a separate benchmark program that needs only the store",
	},
	"cmd/release": {
		ours: []string{"internal/release"},
		why:  "a separate program that passes its flags on",
	},
	"examples/paramserver": {
		ours: []string{"pkg/rpc"},
		why:  "the example shows that a worker needs package rpc alone",
	},
	"examples/launcher": {
		ours:   []string{"pkg/agent", "pkg/procs", "pkg/rdzv", "pkg/rdzv/backends", "pkg/rdzv/elastic", "pkg/workerlog"},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "the example shows that a program needs the packages in pkg alone",
	},
	"internal/caller": {
		theirs: []string{"golang.org/x/sys"},
		why:    "it serves the program that started the launcher, and knows nothing of the launch",
	},
	"internal/config": {
		ours: []string{
			"internal/bytesize", "internal/config/safefile", "internal/lazyregexp", "internal/nearest", "internal/plural",
			"internal/printable", "internal/scheduler", "internal/seconds", "internal/topology", "pkg/coord/certfiles",
			"pkg/rdzv", "pkg/rdzv/rdzvconf", "pkg/workerlog",
		},
		theirs: []string{"github.com/spf13/viper", "github.com/spf13/pflag", "github.com/rs/zerolog", "golang.org/x/sys"},
		why:    "the configuration has types of the packages that it configures, such as signals and log levels",
	},
	"internal/backends": {
		ours: []string{
			"internal/config",
			"internal/launch",
			"internal/nearest",
			"internal/userdir",
			"pkg/coord",
			"pkg/coord/certfiles",
			"pkg/coord/etcd",
			"pkg/procs/guard",
			"pkg/rdzv",
			"pkg/rdzv/backends",
			"pkg/rdzv/elastic",
		},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "it makes rendezvous handlers from the configuration, and does not know the agent that uses them",
	},
	"internal/userdir": {
		theirs: []string{"golang.org/x/sys"},
		why:    "it finds a folder of this user, and does not know what is in it",
	},
	"internal/httpserver": {
		theirs: []string{"github.com/rs/zerolog"},
		why:    "it limits HTTP clients, and does not know what it serves",
	},
	"internal/interpreter": {
		ours:   []string{"internal/lazyregexp", "internal/lookpath", "internal/oneshot", "internal/printable"},
		theirs: []string{"golang.org/x/sys"},
		why:    "it reads and asks interpreters, and does not know who will use one",
	},
	"internal/jobs": {
		ours:   []string{"internal/userdir", "pkg/workerlog"},
		theirs: []string{"golang.org/x/sys"},
		why:    "it finds the launchers of this machine, and does not know what they serve",
	},
	"internal/launch": {
		ours: []string{
			"internal/caller",
			"internal/config",
			"internal/interpreter",
			"internal/nearest",
			"internal/printable",
			"internal/scheduler",
			"internal/topology",
			"pkg/agent",
			"pkg/procs",
			"pkg/workerlog",
		},
		theirs: []string{"github.com/rs/zerolog", "golang.org/x/sys"},
		why:    "a worker's command and environment follow from the configuration and the machine, not from a rendezvous",
	},
	"internal/lazyregexp": {
		why: "the standard library is enough",
	},
	"internal/listen": {
		ours: []string{
			"internal/config",
			"internal/tcplisten",
			"internal/topology",
			"pkg/coord",
			"pkg/rdzv",
			"pkg/rdzv/elastic",
		},
		why: "it explains errors of listeners in terms of flags, so it knows both",
	},
	"internal/logging": {
		ours:   []string{"internal/plural", "pkg/report"},
		theirs: []string{"github.com/rs/zerolog", "golang.org/x/term"},
		why:    "elasticrun's own log does not know what is logged",
	},
	"internal/records": {
		ours: []string{
			"internal/caller", "internal/config", "internal/interpreter", "internal/lookpath", "internal/printable",
			"pkg/agent", "pkg/evidence", "pkg/failure", "pkg/report", "pkg/workerlog",
		},
		theirs: []string{"github.com/rs/zerolog", "golang.org/x/sys"},
		why:    "the files that a launch leaves describe its end and do not decide it",
	},
	"internal/storeserver": {
		ours: []string{
			"internal/boottime", "internal/config", "internal/httpserver", "internal/listen", "internal/logging",
			"internal/sdnotify", "internal/seconds", "pkg/coord", "pkg/coord/certfiles", "pkg/kvstore", "pkg/kvstore/tcpstore", "pkg/rdzv",
			"pkg/rdzv/elastic",
		},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "elasticrun store serves jobs and takes part in none",
	},
	"internal/announce": {
		ours: []string{"internal/plural", "internal/seconds", "pkg/events", "pkg/report"},
		why:  "it writes the lines from the agent's events; its caller knows the console",
	},
	"internal/telemetry": {
		ours: []string{
			"internal/announce", "internal/config", "internal/httpserver", "internal/jobs", "internal/listen", "internal/logging", "internal/status",
			"internal/topology",
			"pkg/agent", "pkg/events", "pkg/procs", "pkg/report", "pkg/workerlog",
		},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "it shows what the agent emits; the agent does not know who reads it",
	},
	"internal/preview": {
		ours: []string{
			"internal/backends", "internal/config", "internal/interpreter", "internal/launch", "internal/listen",
			"internal/plural", "internal/printable", "internal/records", "internal/seconds", "internal/topology",
			"pkg/agent", "pkg/coord", "pkg/coord/certfiles", "pkg/procs", "pkg/rdzv", "pkg/rdzv/elastic",
			"pkg/rdzv/rdzvconf", "pkg/report", "pkg/workerlog",
		},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "a preview uses the packages that a launch would use, and starts nothing",
	},
	"internal/doctor": {
		ours: []string{
			"internal/bytesize", "internal/caller", "internal/cgroup", "internal/config", "internal/interpreter",
			"internal/launch", "internal/lazyregexp", "internal/listen", "internal/logging", "internal/oneshot",
			"internal/plural", "internal/preview", "internal/seconds", "internal/topology", "pkg/agent", "pkg/evidence",
			"pkg/rdzv/elastic", "pkg/report", "pkg/workerlog",
		},
		theirs: []string{"github.com/rs/zerolog", "golang.org/x/sys"},
		why:    "it judges a machine by values that it read before, such as a probe of the endpoint",
	},
	"internal/logview": {
		ours:   []string{"internal/lazyregexp", "internal/printable", "pkg/workerlog"},
		theirs: []string{"github.com/fsnotify/fsnotify"},
		why:    "it reads logs in the form of package workerlog, without flags and jobs",
	},
	"internal/scheduler": {
		ours: []string{"internal/lazyregexp", "internal/oneshot", "internal/plural"},
		why:  "it reports a scheduler's facts and does not decide what follows",
	},
	"internal/manpage": {
		ours: []string{"internal/config"},
		why:  "manual pages follow from the flag tables alone",
	},
	"internal/release": {
		ours: []string{"internal/config", "internal/lazyregexp", "internal/manpage"},
		why:  "a release follows from the source; go builds it",
	},
	"internal/simulate": {
		ours:   []string{"pkg/coord", "pkg/failure", "pkg/rdzv", "pkg/rdzv/elastic"},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "a simulation runs the real rendezvous, without jobs and flags",
	},
	"internal/stacks": {
		ours: []string{"internal/printable", "pkg/pystack"},
		why:  "it knows processes and their stacks; the agent and the command bring them together",
	},
	"internal/status": {
		ours: []string{
			"internal/backends", "internal/bytesize", "internal/config", "internal/httpserver", "internal/jobs",
			"internal/logging", "internal/plural", "internal/printable", "internal/seconds", "internal/stacks",
			"internal/topology", "pkg/coord", "pkg/events", "pkg/procs", "pkg/rdzv", "pkg/rdzv/elastic", "pkg/rdzv/rdzvconf",
			"pkg/report", "pkg/workerlog",
		},
		theirs: []string{"github.com/prometheus/client_golang", "github.com/rs/zerolog", "golang.org/x/term"},
		why:    "it shows the agent's events and the rendezvous' records; the agent does not know its observers",
	},
	"internal/topology": {
		ours:   []string{"internal/cgroup", "internal/lookpath", "internal/oneshot"},
		theirs: []string{"golang.org/x/sys"},
		why:    "it reads the machine and knows nothing of jobs",
	},
	"internal/config/safefile": {
		ours:   []string{"internal/printable", "internal/seconds"},
		theirs: []string{"golang.org/x/sys"},
		why:    "it checks who could have written a file or may read it, and does not know the content",
	},
	"internal/bytesize": {why: "pure functions"},
	"internal/lookpath": {why: "it reads the folders of PATH alone"},
	"internal/nearest":  {why: "pure functions"},
	"internal/peeruid": {
		ours:   []string{"internal/plainerr"},
		theirs: []string{"golang.org/x/sys"},
		why:    "it asks the kernel about sockets, and does not know which users are welcome",
	},
	"internal/plainerr":  {why: "pure functions"},
	"internal/plural":    {why: "pure functions"},
	"internal/seconds":   {why: "pure functions"},
	"internal/printable": {why: "pure functions"},
	"internal/cgroup":    {why: "it finds cgroups; its callers read the limits"},
	"internal/oneshot": {
		ours:   []string{"internal/seconds"},
		theirs: []string{"golang.org/x/sys"},
		why:    "it bounds a program and does not know what it is for",
	},
	"internal/boottime": {
		theirs: []string{"golang.org/x/sys"},
		why:    "sessions use CLOCK_BOOTTIME, which package time lacks",
	},
	"internal/sdnotify":  {why: "it reports to a service manager and does not know which service this is"},
	"internal/openfiles": {why: "it reads a limit and does not know who needs files"},
	"internal/tcplimit": {
		theirs: []string{"golang.org/x/sys"},
		why:    "it sets one option of sockets and does not know what they are for",
	},
	"internal/tcplisten": {why: "it opens listeners and does not know what they serve"},
	"pkg/failure":        {why: "the agent, the rendezvous and the reports share its type"},
	"pkg/evidence": {
		ours: []string{
			"internal/bytesize", "internal/cgroup", "internal/lazyregexp", "internal/plural", "internal/seconds",
			"pkg/failure",
		},
		theirs: []string{"golang.org/x/sys"},
		why:    "it judges what a worker left behind, without knowing jobs",
	},
	"pkg/report": {
		ours: []string{"internal/lazyregexp"},
		why:  "a report is data, whatever its origin",
	},
	"pkg/agent": {
		ours: []string{
			"internal/lazyregexp", "internal/seconds", "pkg/events", "pkg/evidence", "pkg/failure", "pkg/procs", "pkg/rdzv",
			"pkg/report", "pkg/workerlog",
		},
		theirs: []string{"github.com/rs/zerolog", "golang.org/x/sync"},
		why:    "it decides the worker group's life without flags, files and sockets",
	},
	"pkg/rdzv": {
		ours: []string{"pkg/failure", "pkg/kvstore", "pkg/kvstore/tcpstore"},
		why:  "a rendezvous knows stores and ranks, not processes",
	},
	"pkg/rdzv/backends": {
		ours: []string{
			"pkg/coord", "pkg/coord/certfiles", "pkg/coord/etcd", "pkg/rdzv", "pkg/rdzv/elastic", "pkg/rdzv/rdzvconf",
		},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "importers make handlers with it, so it knows neither flags nor the guard",
	},
	"pkg/rdzv/rdzvconf": {
		ours: []string{
			"internal/nearest", "internal/printable", "internal/seconds", "pkg/coord/certfiles", "pkg/rdzv",
		},
		why: "it reads options and does not know what they change, so that the configuration needs no backend",
	},
	"pkg/rdzv/urlrdzv": {
		ours:   []string{"internal/tcplisten", "pkg/kvstore", "pkg/kvstore/filestore", "pkg/kvstore/tcpstore", "pkg/rdzv"},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "workers find each other by a URL and a store, without an agent's rendezvous",
	},
	"pkg/rdzv/elastic": {
		ours: []string{
			"internal/boottime", "internal/peeruid", "internal/plainerr", "internal/plural", "internal/seconds",
			"internal/tcplisten", "internal/userdir", "pkg/coord", "pkg/coord/certfiles", "pkg/coord/group", "pkg/failure",
			"pkg/kvstore/tcpstore", "pkg/rdzv", "pkg/rdzv/rdzvconf",
		},
		theirs: []string{"github.com/rs/zerolog", "golang.org/x/sync"},
		why:    "it knows ranks and the interface of a coordination store, not processes",
	},
	"pkg/coord": {
		ours: []string{
			"internal/boottime", "internal/openfiles", "internal/plainerr", "internal/seconds", "pkg/coord/certfiles",
		},
		theirs: []string{"github.com/rs/zerolog", "go.etcd.io/bbolt"},
		why:    "the coordination store holds keys and sessions, and knows nothing of jobs",
	},
	"pkg/coord/certfiles": {
		ours:   []string{"internal/config/safefile", "internal/plainerr", "internal/printable"},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "it reads files and does not know what their certificates are for",
	},
	"pkg/coord/group": {
		ours:   []string{"internal/plainerr", "internal/tcplimit", "pkg/coord", "pkg/coord/replica"},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "it keeps a coordination store in several processes, and does not know what the store is for",
	},
	"pkg/coord/replica": {
		theirs: []string{"go.etcd.io/raft/v3", "google.golang.org/protobuf"},
		why:    "it replicates keys and values without a clock, a network or a disk, and does not know what they mean",
	},
	"pkg/coord/etcd": {
		ours: []string{"internal/plainerr", "internal/seconds", "pkg/coord"},
		theirs: []string{
			"github.com/rs/zerolog",
			"go.etcd.io/etcd/client/v3",
			"go.etcd.io/etcd/api/v3",
			"google.golang.org/grpc",
			"go.uber.org/zap",
		},
		why: "the only package that knows etcd",
	},
	"pkg/coord/coordtest": {
		ours:     []string{"pkg/coord"},
		forTests: true,
		why:      "the conformance suite of coordination stores",
	},
	"pkg/procs": {
		ours: []string{
			"internal/plural", "internal/printable", "internal/seconds", "pkg/procs/internal/limits",
			"pkg/procs/internal/proctree", "pkg/workerlog",
		},
		theirs: []string{"github.com/rs/zerolog", "github.com/shirou/gopsutil/v3", "golang.org/x/sys"},
		why:    "it starts and stops processes without knowing why",
	},
	"pkg/procs/guard": {
		ours:   []string{"internal/boottime", "pkg/procs", "pkg/procs/internal/limits", "pkg/procs/internal/proctree"},
		theirs: []string{"golang.org/x/sys"},
		why:    "the guard knows processes and nothing of the job, so that it rarely fails",
	},
	"pkg/procs/internal/limits": {
		ours:   []string{"internal/cgroup", "internal/openfiles", "pkg/procs/internal/proctree"},
		theirs: []string{"golang.org/x/sys"},
		why:    "it compares limits with needs, without knowing workers or guards",
	},
	"pkg/procs/internal/proctree": {
		theirs: []string{"golang.org/x/sys"},
		why:    "it reads the process table without knowing workers or guards",
	},
	"pkg/pystack": {
		theirs: []string{"golang.org/x/sys"},
		why:    "it reads a process, whoever started it and for whatever reason",
	},
	"pkg/workerlog": {
		theirs: []string{"github.com/fsnotify/fsnotify", "golang.org/x/sys"},
		why:    "it copies, shows and keeps output without knowing processes or jobs",
	},
	"pkg/kvstore": {
		ours: []string{"internal/seconds", "pkg/kvstore/internal/keyspace"},
		why:  "the store serves bytes to any client",
	},
	"pkg/kvstore/tcpstore": {
		ours: []string{
			"internal/openfiles", "internal/seconds", "pkg/kvstore", "pkg/kvstore/internal/keyspace",
		},
		theirs: []string{"github.com/rs/zerolog", "golang.org/x/sys"},
		why:    "the store serves bytes to any client",
	},
	"pkg/kvstore/filestore": {
		ours: []string{"pkg/kvstore", "pkg/kvstore/internal/keyspace"},
		why:  "the store serves bytes to any client",
	},
	"pkg/kvstore/internal/keyspace": {why: "the keys of a store in memory, without I/O and clocks"},
	"pkg/kvstore/internal/storetest": {
		ours:     []string{"pkg/kvstore", "internal/e2e/testenv", "internal/lazyregexp"},
		theirs:   []string{"github.com/anishathalye/porcupine", "github.com/google/go-cmp", "pgregory.net/rapid"},
		forTests: true,
		why:      "the conformance suite of stores",
	},
	"pkg/rpc": {
		ours: []string{
			"internal/seconds", "internal/topology", "pkg/kvstore", "pkg/rdzv/urlrdzv", "pkg/rpc/device",
			"pkg/rpc/membership", "pkg/rpc/transport",
		},
		theirs: []string{"github.com/fxamacker/cbor/v2", "github.com/rs/zerolog", "golang.org/x/sync"},
		why: "it combines membership and transport, knows gRPC only through the transport, and counts GPUs as the launcher " +
			"does",
	},
	"pkg/rpc/membership": {
		ours:   []string{"pkg/kvstore", "pkg/rpc/device"},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "it decides membership over the store, and does not know how members reach each other",
	},
	"pkg/rpc/transport": {
		ours:   []string{"internal/tcplimit"},
		theirs: []string{"github.com/rs/zerolog", "google.golang.org/grpc"},
		why:    "the transport carries bytes between addresses, and knows no groups",
	},
	"pkg/rpc/device": {why: "pure functions"},
	"pkg/events": {
		theirs: []string{"github.com/rs/zerolog"},
		why:    "every package may emit events, so events import nothing of ours",
	},
	"internal/e2e/testenv": {
		theirs:   []string{"golang.org/x/sys"},
		forTests: true,
		why:      "tests of any package import it",
	},
	"internal/e2e/hosts": {
		ours:     []string{"internal/e2e/testenv"},
		theirs:   []string{"golang.org/x/sys"},
		forTests: true,
		why:      "tests of any package may use hosts, which do not know what runs on them",
	},
	"internal/e2e/slurmlab": {
		ours:     []string{"internal/e2e/testenv"},
		forTests: true,
		why:      "tests of any package may use a cluster, which does not know its jobs",
	},
	"internal/e2e/scenario": {why: "it contains only tests"},
	"internal/e2e/security": {why: "it contains only tests, whose peers speak the agents' protocol by themselves"},
	"internal/e2e/zoo":      {why: "it contains only tests"},
	"internal/archtest":     {why: "it reads source and imports nothing that it checks"},
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

// within tells whether a package belongs to a module (or folder).
func within(pkg, module string) bool {
	return pkg == module || strings.HasPrefix(pkg, module+"/")
}

// TestCheckImports gives the check modules that break the rules.
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
