package config

import (
	"strings"

	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Headings of help and reference, in their order.
const (
	groupSize       = "Job size"
	groupRendezvous = "Rendezvous"
	groupCommand    = "What is run"
	groupOutput     = "Worker output"
	groupLife       = "Restarts and shutdown"
	groupBefore     = "Before a job starts"
	groupSeeing     = "Seeing what a job does"
	groupLauncher   = "The launcher itself"
	// Commands of their own, which groups leaves out:
	groupStore    = "elasticrun store"
	groupSimulate = "elasticrun simulate"
	groupLogs     = "elasticrun logs"
	groupExplain  = "elasticrun explain"
	groupDoctor   = "elasticrun doctor"
	groupStatus   = "elasticrun status"
)

func groups() []string {
	return []string{groupSize, groupRendezvous, groupCommand, groupOutput, groupLife, groupBefore, groupSeeing, groupLauncher}
}

// Flags returns the whole command line: the one table from which flags,
// environment names, config keys and documentation are made.
func Flags() []Flag {
	return fillEnv([]Flag{
		{
			Name: "nnodes", Kind: KindSpec, Default: "1:1", Placeholder: "N|MIN:MAX", Group: groupSize, Torchrun: true,
			Help: "Number of nodes, or the range within which nodes may come, go and die while the job goes on. More than one need --rdzv-endpoint, or what static needs, or a scheduler that tells. Not given, it is what the scheduler tells, if one does.",
		},
		{
			Name: "nproc-per-node", Kind: KindSpec, Default: "1", Placeholder: "N|auto|cpu|gpu", Group: groupSize, Torchrun: true,
			Values: []string{"auto", "cpu", "gpu"},
			Help:   "Workers on this node: a number, gpu (one per GPU), cpu (one per CPU this process may use), or auto (gpu if there is one, else cpu).",
		},
		{
			Name: "role", Kind: KindString, Default: "default", Placeholder: "NAME", Group: groupSize, Torchrun: true,
			Help: "Name of the workers' role: ROLE_NAME, metrics and the prefix of teed lines.",
		},
		{
			Name: "node-rank", Kind: KindInt, Default: "0", Placeholder: "N", Group: groupSize, Torchrun: true,
			Help: "Rank of this node. With static it is the rank; elsewhere a hint, by which ranks are ordered. Not given, it is what the scheduler tells, if one does.",
		},
		{
			Name: "virtual-local-rank", Kind: KindBool, Group: groupSize, Torchrun: true,
			Help: "Give every worker LOCAL_RANK=0 and its one device in CUDA_VISIBLE_DEVICES.",
		},
		{
			Name: "numa-binding", Kind: KindString, Placeholder: "MODE", Group: groupSize, Torchrun: true,
			Values: []string{"node", "socket", "exclusive", "core-complex"},
			Help:   "Bind each worker to the CPUs near its GPU: node, socket, exclusive or core-complex.",
		},

		{
			Name: "standalone", Kind: KindBool, Group: groupRendezvous, Torchrun: true,
			Help: "One node on its own: c10d on a free port with a fresh run id. Nobody else is asked, no scheduler either. Explicit --rdzv-backend, --rdzv-endpoint, --rdzv-id, --master-addr and --master-port are ignored.",
		},
		{
			Name: "rdzv-backend", Kind: KindString, Placeholder: "NAME", Group: groupRendezvous, Torchrun: true,
			Values: []string{"c10d", "etcd", "static"},
			Help:   "Rendezvous backend: c10d (a store on one of the nodes, or elasticrun store), etcd (version 3) or static (ranks and master given). Default: static if --node-rank, --master-addr or --master-port is given with more than one node, else c10d.",
		},
		{
			Name: "rdzv-endpoint", Kind: KindString, Placeholder: "HOST[:PORT]", Group: groupRendezvous, Torchrun: true,
			Help: "Where nodes meet: with c10d the store's address, the same on all nodes, port 29400 unless given; with etcd one or more members, separated by commas, port 2379. Default on one node: a free port; on several: what the scheduler or MASTER_ADDR tells; with static: the master address.",
		},
		{
			Name: "rdzv-id", Kind: KindString, Placeholder: "ID", Group: groupRendezvous, Torchrun: true,
			Help: "Run id of the job, the same on all nodes. Default: a fresh random id on one node; on several the scheduler's, else none, which etcd refuses.",
		},
		{
			Name: "launch-id", Kind: KindString, Placeholder: "ID", Group: groupRendezvous,
			Help: "Names this launch: the same on all its agents, also on those that are started again, and on those of no other launch. By it a late agent of a run that has finished is told from a rerun under the same run id. Default: what a step of Slurm or a job of mpirun tells, else none.",
		},
		{
			Name: "rdzv-conf", Kind: KindString, Placeholder: "K=V,...", Group: groupRendezvous, Torchrun: true,
			Help: "Further options of the rendezvous backend; docs/flags.md lists them.",
		},
		{
			Name: "rdzv-secret-file", Kind: KindString, Placeholder: "FILE", Group: groupRendezvous, Effect: Reads,
			Help: "File with a secret that all agents of the job, and its store, must share. The variable PET_RDZV_SECRET may hold the secret itself.",
		},
		{
			Name: "master-addr", Kind: KindString, Placeholder: "HOST", Group: groupRendezvous, Torchrun: true,
			Help: "MASTER_ADDR: where the worker store listens with static, or with the default backend on one node. IPv6 may stand in brackets. Default: 127.0.0.1.",
		},
		{
			Name: "master-port", Kind: KindInt, Placeholder: "PORT", Group: groupRendezvous, Torchrun: true,
			Help: "MASTER_PORT, like --master-addr; 0 chooses a free port. Default: a free port on one node, else 29500.",
		},
		{
			Name: "local-addr", Kind: KindString, Placeholder: "HOST", Group: groupRendezvous, Torchrun: true,
			Help: "Address by which other nodes reach this one.",
		},
		{
			Name: "worker-store-port", Kind: KindSpec, Placeholder: "N|LO-HI", Group: groupRendezvous,
			Help: "Port for the workers' store (MASTER_PORT), or ports of which the first free one is taken, where a firewall lets only those through; one for each agent of a machine. Default: any free port. Not with static or on one node, where --master-port says it.",
		},

		{
			Name: "module", Short: "m", Kind: KindBool, Group: groupCommand, Torchrun: true,
			Help: "SCRIPT is a Python module: run it as python -m does.",
		},
		{
			Name: "no-python", Kind: KindBool, Group: groupCommand, Torchrun: true,
			Help: "SCRIPT is a program: run it as it is, without Python in front.",
		},
		{
			Name: "run-path", Kind: KindBool, Group: groupCommand, Torchrun: true,
			Help: "SCRIPT must be an absolute path; it then runs like any other script. Wins over --no-python and --module.",
		},
		{
			Name: "start-method", Kind: KindString, Default: "spawn", Placeholder: "METHOD", Group: groupCommand, Torchrun: true,
			Values: []string{"spawn", "fork", "forkserver"},
			Help:   "Accepted (spawn, fork, forkserver) without effect: workers are always programs of their own.",
		},

		{
			Name: "log-dir", Kind: KindString, Placeholder: "DIR", Group: groupOutput, Effect: Writes, Torchrun: true,
			Help: "Folder for log and error files; each run gets a subfolder. Default: a fresh folder in the temporary directory. /dev/null writes none.",
		},
		{
			Name: "redirects", Short: "r", Kind: KindSpec, Default: "0", Placeholder: "STREAMS", Group: groupOutput, Torchrun: true,
			Values: []string{"0", "1", "2", "3"},
			Help:   "Write streams of the workers to files instead of the console: 0 none, 1 stdout, 2 stderr, 3 both, or a map from local rank such as 0:3,1:2. Ranks may be ranges (0-7:3), and global ones with a g (g0:3,g8-15:1).",
		},
		{
			Name: "tee", Short: "t", Kind: KindSpec, Default: "0", Placeholder: "STREAMS", Group: groupOutput, Torchrun: true,
			Values: []string{"0", "1", "2", "3"},
			Help:   "Write streams to files and, with a prefix, to the console; values as for --redirects.",
		},
		{
			Name: "local-ranks-filter", Kind: KindSpec, Placeholder: "RANKS", Group: groupOutput, Torchrun: true,
			Help: "Show only these local ranks on the console, such as 0,4-7; with a g, global ranks (g0). Files are not affected.",
		},
		{
			Name: "duplicate-stdout-filters", Kind: KindString, Placeholder: "TEXT,...", Group: groupOutput, Torchrun: true,
			Help: "Also copy teed stdout lines that contain one of these texts to filtered_stdout.log. ,, stands for a comma.",
		},
		{
			Name: "duplicate-stderr-filters", Kind: KindString, Placeholder: "TEXT,...", Group: groupOutput, Torchrun: true,
			Help: "The same for stderr and filtered_stderr.log.",
		},
		{
			Name: "log-line-prefix", Kind: KindString, Placeholder: "TEMPLATE", Group: groupOutput,
			Env:  []string{"ELASTICRUN_LOG_LINE_PREFIX", workerlog.PrefixTemplateEnv},
			Help: "What teed lines start with on the console; ${role_name}, ${local_rank}, ${rank}, ${node_rank}, ${hostname} and ${time} are filled in. Default: [${role_name}${local_rank}]:.",
		},
		{
			Name: "log-max-size", Kind: KindSpec, Placeholder: "SIZE", Group: groupOutput,
			Help: "Begin a new log file when one has this size, such as 100MiB, at the end of a line: stdout.log is the current file, stdout.log.1 the oldest. What is redirected passes through the launcher then. Default: one file.",
		},
		{
			Name: "log-max-files", Kind: KindInt, Default: "0", Placeholder: "N", Group: groupOutput,
			Help: "With --log-max-size keep at most N files of a stream, the current one included; the oldest go. 0 keeps all.",
		},
		{
			Name: "logs-specs", Kind: KindString, Placeholder: "NAME", Group: groupOutput, Torchrun: true,
			Help: "Refused: it names a Python class. Use --log-dir, --redirects and --tee.",
		},

		{
			Name: "max-restarts", Kind: KindInt, Default: "0", Placeholder: "N", Group: groupLife, Torchrun: true,
			Help: "How often the workers of all nodes are restarted after a failure before the job fails. A lost node is no failure. A program that cannot be executed is tried once.",
		},
		{
			Name: "restart-window", Kind: KindSeconds, Default: "0", Placeholder: "SECONDS", Group: groupLife,
			Help: "Count only restarts of the last SECONDS against --max-restarts. 0 counts all.",
		},
		{
			Name: "max-node-losses", Kind: KindInt, Default: "3", Placeholder: "N", Group: groupLife,
			Help: "Keep a node out of the job once it was lost N times in 10 minutes, as long as the job can run without it. 0 never does.",
		},
		{
			Name: "rejoin-timeout", Kind: KindSeconds, Placeholder: "SECONDS", Group: groupLife,
			Help: "How long a node may take to stop its workers when the membership changes; the job then goes on without it. Default: --restart-grace and 10 more, and --preflight-timeout where there is a --preflight-cmd, but no less than keep_alive_interval times keep_alive_max_attempt.",
		},
		{
			Name: "grow", Kind: KindString, Default: "now", Placeholder: "WHEN", Group: groupLife,
			Values: []string{"now", "next-restart", "never"},
			Help:   "When nodes that come to a running job are let in, which restarts its workers: now, next-restart (whatever its cause) or never.",
		},
		{
			Name: "min-uptime", Kind: KindSeconds, Default: "10", Placeholder: "SECONDS", Group: groupLife,
			Help: "Space restarts by growing pauses while workers fail sooner than this after their start, from the second time on. 0 never does.",
		},
		{
			Name: "monitor-interval", Kind: KindSeconds, Default: "0.1", Placeholder: "SECONDS", Group: groupLife, Torchrun: true,
			Help: "Accepted without effect: a worker's exit is seen when it happens.",
		},
		{
			Name: "signals-to-handle", Kind: KindString, Default: "SIGTERM,SIGINT,SIGHUP,SIGQUIT", Placeholder: "SIG,...", Group: groupLife, Torchrun: true,
			Help: "Signals on which the launcher passes the signal on to the workers, waits for them and ends.",
		},
		{
			Name: "shutdown-timeout", Kind: KindSeconds, Default: "30", Placeholder: "SECONDS", Group: groupLife, Torchrun: true,
			Env:  []string{"PET_SHUTDOWN_TIMEOUT", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"},
			Help: "How long workers may take to stop, when the launcher is told to, before they get SIGKILL.",
		},
		{
			Name: "restart-grace", Kind: KindSeconds, Placeholder: "SECONDS", Group: groupLife,
			Help: "The same when they are stopped because of a failure or a membership change and the job may go on. Default: --shutdown-timeout.",
		},
		{
			Name: "error-exit-timeout", Kind: KindSeconds, Default: "60", Placeholder: "SECONDS", Group: groupLife,
			Help: "How long a worker that has written its error file may take to end before it counts as failed. 0 waits for ever.",
		},
		{
			Name: "exit-barrier-timeout", Kind: KindSeconds, Default: "300", Placeholder: "SECONDS", Group: groupLife,
			Env:  []string{"TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT"},
			Help: "How long a node that has finished waits for the others. It always waits for the keep-alive time, so that the others learn the result.",
		},
		{
			Name: "exit-code-map", Kind: KindString, Placeholder: "FROM=TO,...", Group: groupLife,
			Help: "Change the launcher's exit code for a scheduler. FROM is a code or a reason, such as 137=75,rendezvous=99.",
		},

		{
			Name: "dry-run", Kind: KindBool, Group: groupBefore, Env: []string{}, CommandLineOnly: true,
			Help: "Say what would be done, and start nothing: what elasticrun explain says. Ends with 2, or 73, where the launch would be refused.",
		},
		{
			Name: "preflight", Kind: KindBool, Group: groupBefore,
			Help: "Check this machine, as elasticrun doctor does, before this node joins the job. Where a check fails it does not join, and ends with 72.",
		},
		{
			Name: "preflight-cmd", Kind: KindString, Placeholder: "CMD", Group: groupBefore, Effect: Executes,
			Help: "The site's own check, run by sh -c before this node joins, and again before it goes on after a failure of one of its own workers. Where it does not end with 0 this node does not join, or leaves, with code 72.",
		},
		{
			Name: "preflight-timeout", Kind: KindSeconds, Default: "60", Placeholder: "SECONDS", Group: groupBefore,
			Help: "How long --preflight-cmd may take before it counts as failed.",
		},

		{
			Name: "status-addr", Kind: KindString, Placeholder: "HOST:PORT", Group: groupSeeing,
			Help: "Answer HTTP there: /healthz, /readyz, /status and /metrics say what this node is doing. :PORT is this machine alone; to answer others give an address of it, or 0.0.0.0. Port 0 takes a free one. Default: nowhere.",
		},
		{
			Name: "event-log", Kind: KindString, Placeholder: "FILE", Group: groupSeeing, Effect: Writes,
			Help: "Append what happens to the job to FILE, as lines of JSON. ${hostname} and ${run_id} in it are replaced, for nodes that share a disk.",
		},
		{
			Name: "report", Kind: KindString, Placeholder: "FILE", Group: groupSeeing, Effect: Writes,
			Help: "Write how it all ended to FILE, as JSON, however it ends. ${hostname}, ${node_rank} and ${run_id} in it are replaced, for nodes that share a disk.",
		},
		{
			Name: "event-log-handler", Kind: KindString, Default: "null", Placeholder: "NAME", Group: groupSeeing, Torchrun: true,
			Values: []string{"null", "console"},
			Help:   "Where torch's events are written: null (nowhere) or console. dynamic_rendezvous is null.",
		},

		{
			Name: "config", Kind: KindString, Placeholder: "FILE", Group: groupLauncher, Effect: Reads, CommandLineOnly: true,
			Help: "Config file. Default: elasticrun.yaml here, else elasticrun/elasticrun.yaml in the user's config folder, if there.",
		},
		{
			Name: "log-format", Kind: KindString, Default: "auto", Placeholder: "FORMAT", Group: groupLauncher,
			Values: []string{"auto", "console", "json"},
			Help:   "Form of elasticrun's own log on stderr: console, json, or auto, which is console with colours on a terminal.",
		},
		{
			Name: "log-level", Kind: KindString, Default: "warning", Placeholder: "LEVEL", Group: groupLauncher,
			Values: []string{"trace", "debug", "info", "warning", "error", "critical"},
			Env:    []string{"LOGLEVEL"},
			Help:   "Level of elasticrun's own log: trace, debug, info, warning, error or critical.",
		},
		{
			Name: "help", Short: "h", Kind: KindAction, Group: groupLauncher, Torchrun: true, CommandLineOnly: true,
			Help: "Show this text.",
		},
		{
			Name: "version", Kind: KindAction, Group: groupLauncher, CommandLineOnly: true,
			Help: "Show the version.",
		},
	})
}

// fillEnv names the variable of every flag that does not name its own:
// PET_<NAME> for torchrun's, ELASTICRUN_<NAME> for ours. torchrun gives
// --logs-specs and --numa-binding no variable, and neither do we.
func fillEnv(flags []Flag) []Flag {
	for i := range flags {
		f := &flags[i]
		if f.Env != nil || f.Kind == KindAction || f.Name == "logs-specs" || f.Name == "numa-binding" {
			continue
		}
		prefix := "ELASTICRUN_"
		if f.Torchrun {
			prefix = "PET_"
		}
		f.Env = []string{prefix + strings.ToUpper(f.Underscored())}
	}
	return flags
}
