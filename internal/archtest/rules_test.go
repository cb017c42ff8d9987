package archtest

// rules has an entry for every package. Data flows one way, from the command down to the stores and processes.
var rules = map[string]rule{
	"cmd/elasticrun": {
		ours: []string{
			"internal/backends", "internal/caller", "internal/config", "internal/config/help",
			"internal/config/safefile", "internal/doctor", "internal/exitcode", "internal/filetimer", "internal/jobs", "internal/workerspec", "internal/listen", "internal/liveness", "internal/logging", "internal/logview",
			"internal/plural", "internal/preview", "internal/printable", "internal/records", "internal/scheduler", "internal/sdnotify", "internal/seconds",
			"internal/siginfo", "internal/simulate", "internal/status", "internal/storeserver", "internal/telemetry",
			"internal/topology", "internal/workerdir", "pkg/agent", "pkg/coord", "pkg/evidence", "pkg/failure", "pkg/procs",
			"pkg/procs/guard", "pkg/rdzv",
			"pkg/rdzv/elastic", "pkg/rdzv/elastic/rounds", "pkg/report", "pkg/workerlog",
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
		ours:   []string{"pkg/agent", "pkg/procs", "pkg/rdzv", "pkg/rdzv/backends", "pkg/rdzv/elastic", "pkg/rdzv/elastic/rounds", "pkg/workerlog"},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "the example shows that a program needs the packages in pkg alone",
	},
	"internal/caller": {
		theirs: []string{"golang.org/x/sys"},
		why:    "it serves the program that started the launcher, and knows nothing of the launch",
	},
	"internal/config": {
		ours: []string{
			"internal/bytesize", "internal/config/safefile", "internal/exitcode", "internal/lazyregexp", "internal/nearest", "internal/plural",
			"internal/printable", "internal/scheduler", "internal/seconds", "internal/topology", "pkg/coord/certfiles",
			"pkg/rdzv", "pkg/rdzv/rdzvconf", "pkg/workerlog",
		},
		theirs: []string{"github.com/spf13/viper", "github.com/spf13/pflag", "github.com/rs/zerolog", "golang.org/x/sys"},
		why:    "the configuration has types of the packages that it configures, such as signals and log levels",
	},
	"internal/config/help": {
		ours: []string{"internal/config"},
		why:  "the help says what the tables say, and nothing else reads it",
	},
	"internal/exitcode": {
		why: "reasons and rules are data, which the command and the records of a launch share",
	},
	"internal/backends": {
		ours: []string{
			"internal/config",
			"internal/workerspec",
			"internal/nearest",
			"internal/userdir",
			"pkg/coord",
			"pkg/coord/certfiles",
			"pkg/coord/etcd",
			"pkg/procs/guard",
			"pkg/rdzv",
			"pkg/rdzv/backends",
			"pkg/rdzv/elastic", "pkg/rdzv/elastic/machine", "pkg/rdzv/elastic/rounds",
		},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "it makes rendezvous handlers from the configuration, and does not know the agent that uses them",
	},
	"internal/userdir": {
		theirs: []string{"golang.org/x/sys"},
		why:    "it finds a folder of this user, and does not know what is in it",
	},
	"internal/filetimer": {
		ours:   []string{"internal/printable"},
		theirs: []string{"github.com/rs/zerolog", "golang.org/x/sys"},
		why:    "it keeps timers of processes, and does not know which processes are workers",
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
	"internal/workerspec": {
		ours: []string{
			"internal/caller",
			"internal/config",
			"internal/filetimer",
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
			"pkg/rdzv/elastic", "pkg/rdzv/elastic/machine",
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
			"internal/caller", "internal/config", "internal/exitcode", "internal/interpreter", "internal/lookpath",
			"internal/printable", "pkg/agent", "pkg/evidence", "pkg/failure", "pkg/report", "pkg/workerlog",
		},
		theirs: []string{"github.com/rs/zerolog", "golang.org/x/sys"},
		why:    "the files that a launch leaves describe its end and do not decide it",
	},
	"internal/storeserver": {
		ours: []string{
			"internal/boottime", "internal/config", "internal/httpserver", "internal/listen", "internal/logging",
			"internal/sdnotify", "internal/seconds", "pkg/coord", "pkg/coord/certfiles", "pkg/kvstore", "pkg/kvstore/tcpstore", "pkg/rdzv",
			"pkg/rdzv/elastic", "pkg/rdzv/elastic/machine", "pkg/rdzv/elastic/rounds",
		},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "elasticrun store serves jobs and takes part in none",
	},
	"internal/announce": {
		ours: []string{"internal/plural", "internal/seconds", "pkg/events", "pkg/goodput", "pkg/report"},
		why:  "it writes the lines from the agent's events; its caller knows the console",
	},
	"internal/telemetry": {
		ours: []string{
			"internal/announce", "internal/caller", "internal/config", "internal/exitcode", "internal/hang", "internal/httpserver", "internal/jobs",
			"internal/listen", "internal/liveness", "internal/logging", "internal/notify", "internal/seconds", "internal/stacks", "internal/status", "internal/topology",
			"pkg/agent", "pkg/events", "pkg/failure", "pkg/goodput", "pkg/procs", "pkg/rdzv", "pkg/rdzv/elastic", "pkg/rdzv/elastic/rounds", "pkg/report",
			"pkg/workerlog",
		},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "it shows what the agent emits and what its workers do; the agent does not know who reads it",
	},
	"internal/preview": {
		ours: []string{
			"internal/backends", "internal/config", "internal/interpreter", "internal/workerspec", "internal/listen",
			"internal/plural", "internal/printable", "internal/records", "internal/seconds", "internal/topology",
			"pkg/agent", "pkg/coord", "pkg/coord/certfiles", "pkg/procs", "pkg/rdzv", "pkg/rdzv/elastic", "pkg/rdzv/elastic/machine", "pkg/rdzv/elastic/rounds",
			"pkg/rdzv/rdzvconf", "pkg/report", "pkg/workerlog",
		},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "a preview uses the packages that a launch would use, and starts nothing",
	},
	"internal/doctor": {
		ours: []string{
			"internal/bytesize", "internal/caller", "internal/cgroup", "internal/config", "internal/interpreter",
			"internal/workerspec", "internal/lazyregexp", "internal/listen", "internal/logging", "internal/oneshot",
			"internal/plural", "internal/preview", "internal/seconds", "internal/topology", "pkg/agent", "pkg/evidence",
			"pkg/rdzv/elastic", "pkg/rdzv/elastic/machine", "pkg/report", "pkg/workerlog",
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
	"internal/siginfo": {ours: []string{"internal/printable"}, theirs: []string{"golang.org/x/sys"}, why: "it knows signals alone"},
	"internal/simulate": {
		ours:   []string{"pkg/coord", "pkg/failure", "pkg/rdzv", "pkg/rdzv/elastic", "pkg/rdzv/elastic/machine", "pkg/rdzv/elastic/rounds"},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "a simulation runs the real rendezvous, without jobs and flags",
	},
	"internal/stacks": {
		ours: []string{"internal/printable", "internal/seconds", "pkg/pystack"},
		why:  "it knows processes and their stacks; the agent and the command bring them together",
	},
	"internal/hang": {
		pure: true,
		ours: []string{"internal/plural", "internal/printable", "internal/seconds", "internal/stacks"},
		why:  "it judges what the agents have seen, and neither reads nor decides",
	},
	"internal/liveness": {
		ours:   []string{"internal/stacks", "pkg/pystack"},
		theirs: []string{"github.com/rs/zerolog", "golang.org/x/sys"},
		why:    "it watches processes, and knows neither the rendezvous nor the agent that acts on what it finds",
	},
	"internal/notify": {
		ours:   []string{"internal/oneshot", "pkg/events"},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "notices follow from events alone; the agent does not know its observers",
	},
	"internal/workerdir": {
		theirs: []string{"golang.org/x/sys"},
		why:    "it makes a folder, and does not know what the files in it say",
	},
	"internal/status": {
		ours: []string{
			"internal/backends", "internal/bytesize", "internal/config", "internal/httpserver", "internal/jobs",
			"internal/logging", "internal/plural", "internal/printable", "internal/seconds", "internal/stacks",
			"internal/topology", "pkg/coord", "pkg/events", "pkg/goodput", "pkg/procs", "pkg/rdzv", "pkg/rdzv/elastic",
			"pkg/rdzv/rdzvconf", "pkg/report", "pkg/workerlog",
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
	"pkg/goodput":        {why: "the rendezvous fills its type, and events, reports and status show it"},
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
		ours: []string{"internal/lazyregexp", "pkg/goodput"},
		why:  "a report is data, whatever its origin",
	},
	"pkg/agent": {
		ours: []string{
			"internal/lazyregexp", "internal/seconds", "pkg/events", "pkg/evidence", "pkg/failure", "pkg/goodput",
			"pkg/procs", "pkg/rdzv", "pkg/report", "pkg/workerlog",
		},
		theirs: []string{"github.com/rs/zerolog", "golang.org/x/sync"},
		why:    "it decides the worker group's life without flags, files and sockets",
	},
	"pkg/rdzv": {
		ours: []string{"pkg/failure", "pkg/goodput", "pkg/kvstore", "pkg/kvstore/tcpstore"},
		why:  "a rendezvous knows stores and ranks, not processes",
	},
	"pkg/rdzv/backends": {
		ours: []string{
			"pkg/coord", "pkg/coord/certfiles", "pkg/coord/etcd", "pkg/rdzv", "pkg/rdzv/elastic", "pkg/rdzv/elastic/machine", "pkg/rdzv/elastic/rounds", "pkg/rdzv/rdzvconf",
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
			"internal/tcplisten", "internal/userdir", "pkg/coord", "pkg/coord/certfiles", "pkg/coord/group",
			"pkg/failure", "pkg/goodput", "pkg/kvstore/tcpstore", "pkg/rdzv",
			"pkg/rdzv/elastic/founding", "pkg/rdzv/elastic/machine", "pkg/rdzv/elastic/rounds", "pkg/rdzv/rdzvconf",
		},
		theirs: []string{"github.com/rs/zerolog", "golang.org/x/sync"},
		why:    "it knows ranks and the interface of a coordination store, not processes",
	},
	"pkg/rdzv/elastic/machine": {
		ours: []string{
			"internal/boottime", "internal/plainerr", "internal/seconds", "internal/tcplisten", "internal/userdir", "pkg/rdzv",
			"pkg/rdzv/elastic/rounds", "pkg/rdzv/rdzvconf",
		},
		why: "it answers what is on this machine; package elastic uses it",
	},
	"pkg/rdzv/elastic/rounds": {
		pure: true,
		ours: []string{
			"internal/plural", "internal/seconds", "pkg/coord", "pkg/coord/group", "pkg/failure", "pkg/goodput", "pkg/rdzv",
		},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "it decides; package elastic has the clock, the store and the agent",
	},
	"pkg/rdzv/elastic/founding": {
		pure: true,
		ours: []string{"pkg/coord", "pkg/coord/group"},
		why:  "it decides who begins a store; package elastic has the network and the files",
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
		ours: []string{
			"internal/boottime", "internal/siginfo", "pkg/procs", "pkg/procs/internal/limits", "pkg/procs/internal/proctree",
		},
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
		ours:   []string{"pkg/goodput"},
		theirs: []string{"github.com/rs/zerolog"},
		why:    "every package may emit events, so events import nothing of ours but values",
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
	"internal/e2e/hangs":    {why: "it contains only tests"},
	"internal/archtest":     {why: "it reads source and imports nothing that it checks"},
}
