package config

import (
	"math"
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Headings of the help, see [Groups].
const (
	groupSize       = "Job size"
	groupRendezvous = "Rendezvous"
	groupCommand    = "Command"
	groupOutput     = "Worker output"
	groupLife       = "Restarts and shutdown"
	groupBefore     = "Before the job starts"
	groupObserve    = "Observing a job"
	groupLauncher   = "The launcher itself"
)

// Groups returns the headings under which the help lists the flags of a launch, in their order.
func Groups() []string {
	return []string{
		groupSize, groupRendezvous, groupCommand, groupOutput, groupLife, groupBefore, groupObserve, groupLauncher,
	}
}

// Flags returns the flag table of a launch. Flags, environment variables, config keys, value checks and documentation
// all come from this table.
func Flags() []Flag {
	return fillEnv(slices.Concat([]Flag{
		{
			Name: "nnodes", Kind: KindSpec, Default: "1:1", Placeholder: "N|MIN:MAX", Group: groupSize, Torchrun: true,
			parse: as(parseNodes),
			Help: "Number of nodes. MIN:MAX lets nodes join, leave and fail while the job runs. More than one node " +
				"needs --rdzv-endpoint or a scheduler that provides it. Default: the scheduler's value, or 1:1 " +
				"without a scheduler.",
		},
		{
			Name: "nproc-per-node", Kind: KindSpec, Default: "1", Placeholder: "N|auto|cpu|gpu|xpu",
			Group: groupSize, Torchrun: true,
			Values: []string{"auto", "cpu", "gpu", "xpu"},
			Help: "Workers on this node: a number, gpu (one per GPU of NVIDIA or AMD), xpu (one per GPU of Intel), cpu (one " +
				"per CPU that this process may use), or auto (one per GPU if there is one that is not integrated, else cpu).",
		},
		{
			Name: "nnodes-multiple", Kind: KindInt, Default: "1", Placeholder: "N", Group: groupSize,
			parse: as(between(1, maxMultiple)),
			Help: "Each round has the largest multiple of N among the nodes that have joined; the others are spares. It " +
				"narrows the range of --nnodes.",
		},
		{
			Name: "world-size-multiple", Kind: KindInt, Default: "1", Placeholder: "N", Group: groupSize,
			parse: as(between(1, maxMultiple)),
			Help: "Like --nnodes-multiple, for the number of workers on all nodes. All nodes must have the same " +
				"--nproc-per-node, or values that lead to the same multiple of nodes.",
		},
		{
			Name: "role", Kind: KindString, Default: "default", Placeholder: "NAME", Group: groupSize, Torchrun: true,
			parse: as(notEmpty),
			Help:  "Role name of the workers: it is used for ROLE_NAME, for metrics and for the prefix of teed lines.",
		},
		{
			Name: "node-rank", Kind: KindInt, Default: "0", Placeholder: "N", Group: groupSize, Torchrun: true,
			parse: as(between(0, maxNodes)),
			Help: "Rank of this node. With other backends than static it only orders the nodes. Default: the " +
				"scheduler's value, or 0 without a scheduler.",
		},
		{
			Name: "virtual-local-rank", Kind: KindBool, Group: groupSize, Torchrun: true,
			Help: "Give every worker LOCAL_RANK=0 and only its own device in CUDA_VISIBLE_DEVICES, or in ZE_AFFINITY_MASK for " +
				"Intel.",
		},
		{
			Name: "numa-binding", Kind: KindString, Placeholder: "MODE", Group: groupSize, Torchrun: true,
			Values: []string{
				"node",
				"socket",
				"exclusive",
				"core-complex",
			}, parse: as(oneOf("node", "socket", "exclusive", "core-complex")),
			Help: "Bind each worker to the CPUs near its GPU: node, socket, exclusive or core-complex.",
		},

		{
			Name: "standalone", Kind: KindBool, Group: groupRendezvous, Torchrun: true,
			Help: "Run on this node alone: c10d on a free port with a fresh run id. Schedulers, --rdzv-backend, " +
				"--rdzv-endpoint, --rdzv-id, --master-addr and --master-port are ignored.",
		},
		{
			Name: "rdzv-backend", Kind: KindString, Placeholder: "NAME", Group: groupRendezvous, Torchrun: true,
			Values: []string{"c10d", "etcd", "static"},
			Help: "Rendezvous backend: c10d (a store on one of the nodes, or elasticrun store), etcd (version 3) or " +
				"static (fixed ranks and master address). Default: c10d; static for several nodes if --node-rank, " +
				"--master-addr or --master-port is given.",
		},
		{
			Name: "rdzv-endpoint", Kind: KindString, Placeholder: "HOST[:PORT]", Group: groupRendezvous, Torchrun: true,
			Values: []string{LocalEndpoint},
			Help: "Where the nodes meet, the same on all nodes. For c10d: the address of the store, port 29400 by default, or " +
				"local for several agents of yours on this machine, which need no port. For etcd: one or more members, " +
				"separated by commas, port 2379 by default. Default: a free port on one node; on several nodes the " +
				"scheduler's value, or MASTER_ADDR; with static the master address.",
		},
		{
			Name: "rdzv-id", Kind: KindString, Placeholder: "ID", Group: groupRendezvous, Torchrun: true,
			Help: "Run id of the job, the same on all nodes. Default: a random id on one node; on several nodes the " +
				"scheduler's value, or \"none\", which etcd refuses; with --rdzv-endpoint=local one made of the command.",
		},
		{
			Name: "launch-id", Kind: KindString, Placeholder: "ID", Group: groupRendezvous, parse: as(parseLaunchID),
			Help: "Identifies this launch: the same on all its agents, also on restarted ones, and different for every " +
				"other launch. It tells a late agent of a finished run from a new run with the same run id. Default: " +
				"from a Slurm step or an mpirun job, else none.",
		},
		{
			Name: "rdzv-conf", Kind: KindString, Placeholder: "K=V,...", Group: groupRendezvous, Torchrun: true,
			parse: as(parseConf),
			Help:  "More options of the rendezvous backend; docs/flags.md lists them.",
		},
		{
			Name: "rdzv-secret-file", Kind: KindString, Placeholder: "FILE", Group: groupRendezvous, Effect: Reads,
			Help: "File with a secret that all agents of the job and its store must share. PET_RDZV_SECRET can hold the " +
				"secret itself. elasticrun secret > FILE makes one.",
		},
		{
			Name: "require-auth", Kind: KindBool, Group: groupRendezvous,
			Help: "Refuse a job of several nodes whose store would serve everybody who can reach it: c10d and static need " +
				"a secret, etcd a user or a client certificate.",
		},
		{
			Name: "master-addr", Kind: KindString, Placeholder: "HOST", Group: groupRendezvous, Torchrun: true,
			parse: as(optionalHost),
			Help: "MASTER_ADDR: where the workers' store listens, with static, or on one node with the default backend. " +
				"Default: 127.0.0.1.",
		},
		{
			Name: "master-port", Kind: KindInt, Placeholder: "PORT", Group: groupRendezvous, Torchrun: true,
			parse: as(between(0, 65535)),
			Help: "MASTER_PORT, for the same cases as --master-addr; 0 takes a free port. Default: a free port on one " +
				"node, else 29500.",
		},
		{
			Name: "local-addr", Kind: KindString, Placeholder: "HOST", Group: groupRendezvous, Torchrun: true,
			parse: as(optionalHost),
			Help:  "Address at which other nodes reach this node.",
		},
		{
			Name: "worker-store-port", Kind: KindSpec, Placeholder: "N|LO-HI", Group: groupRendezvous, parse: as(parsePortRange),
			Help: "Port of the workers' store (MASTER_PORT), or a range of which the first free port is taken. Use it " +
				"if a firewall lets only these ports through; each agent of a machine needs one. Default: any free " +
				"port. No effect with static and on one node, where --master-port applies.",
		},
		storeUsersFlag(),

		{
			Name: "module", Short: "m", Kind: KindBool, Group: groupCommand, Torchrun: true,
			Help: "SCRIPT is a Python module: run it as python -m does.",
		},
		{
			Name: "no-python", Kind: KindBool, Group: groupCommand, Torchrun: true,
			Help: "SCRIPT is a program: run it without Python.",
		},
		{
			Name: "run-path", Kind: KindBool, Group: groupCommand, Torchrun: true,
			Help: "Require an absolute path for SCRIPT, and run it like any other script. Overrides --no-python and " +
				"--module.",
		},
		{
			Name: "use-env", Kind: KindBool, Group: groupCommand, Env: []string{}, CommandLineOnly: true,
			Help: "Accepted for the sake of torch.distributed.launch, and always on: each worker has its local rank in " +
				"LOCAL_RANK and gets no --local-rank argument.",
		},
		{
			Name: "start-method", Kind: KindString, Default: "spawn", Placeholder: "METHOD", Group: groupCommand, Torchrun: true,
			Values: []string{"spawn", "fork", "forkserver"}, parse: as(oneOf("spawn", "fork", "forkserver")),
			Help: "Accepted for torchrun's sake (spawn, fork, forkserver) and ignored: every worker is a program of its " +
				"own.",
		},

		{
			Name: "log-dir", Kind: KindString, Placeholder: "DIR", Group: groupOutput, Effect: Writes, Torchrun: true,
			Help: "Folder for log and error files; each run gets a subfolder. /dev/null writes none. Default: a new " +
				"folder in the temporary directory.",
		},
		{
			Name: "redirects", Short: "r", Kind: KindSpec, Default: "0", Placeholder: "STREAMS",
			Group: groupOutput, Torchrun: true,
			Values: []string{"0", "1", "2", "3"}, parse: as(workerlog.ParseStreamSpec),
			Help: "Write the workers' output to files instead of the console: 0 none, 1 stdout, 2 stderr, 3 both. A map " +
				"sets it by local rank: 0:3,1:2, or with a range 0-7:3. A g selects global ranks: g0:3,g8-15:1.",
		},
		{
			Name: "tee", Short: "t", Kind: KindSpec, Default: "0", Placeholder: "STREAMS", Group: groupOutput, Torchrun: true,
			Values: []string{"0", "1", "2", "3"}, parse: as(workerlog.ParseStreamSpec),
			Help: "Write the workers' output to files and, with a prefix, to the console; values as for --redirects.",
		},
		{
			Name: "local-ranks-filter", Kind: KindSpec, Placeholder: "RANKS", Group: groupOutput, Torchrun: true,
			parse: as(workerlog.ParseRanks),
			Help: "Show only these local ranks on the console, such as 0,4-7; with a g, global ranks (g0). Files are " +
				"not affected.",
		},
		{
			Name: "duplicate-stdout-filters", Kind: KindString, Placeholder: "TEXT,...", Group: groupOutput, Torchrun: true,
			parse: as(parseFilters),
			Help: "Also copy teed stdout lines that contain one of these texts to filtered_stdout.log. Write ,, for a " +
				"comma.",
		},
		{
			Name: "duplicate-stderr-filters", Kind: KindString, Placeholder: "TEXT,...", Group: groupOutput, Torchrun: true,
			parse: as(parseFilters),
			Help:  "Like --duplicate-stdout-filters, for stderr and filtered_stderr.log.",
		},
		{
			Name: "log-line-prefix-template", Kind: KindString, Placeholder: "TEMPLATE", Group: groupOutput, Torchrun: true,
			Alias: "log-line-prefix",
			Env:   []string{"PET_LOG_LINE_PREFIX_TEMPLATE", "ELASTICRUN_LOG_LINE_PREFIX", workerlog.PrefixTemplateEnv},
			Help: "Prefix of teed lines on the console. ${role_name}, ${local_rank}, ${rank}, ${node_rank}, ${hostname} " +
				"and ${time} are replaced. Default: [${role_name}${local_rank}]:.",
		},
		{
			Name: "log-max-size", Kind: KindSpec, Placeholder: "SIZE", Group: groupOutput,
			parse: as(sizeFrom(minLogSize, "4KiB")),
			Help: "Start a new log file, at the end of a line, when a file reaches this size, such as 100MiB. " +
				"stdout.log is the current file and stdout.log.1 the oldest. Redirected output then passes through " +
				"the launcher. Default: one file.",
		},
		{
			Name: "log-max-files", Kind: KindInt, Default: "0", Placeholder: "N", Group: groupOutput,
			parse: as(between(0, math.MaxInt32)),
			Help:  "With --log-max-size, keep the N newest files of a stream, the current one included. 0 keeps all.",
		},
		{
			Name: "logs-specs", Kind: KindString, Placeholder: "NAME", Group: groupOutput, Torchrun: true,
			Help: "Refused, because it names a Python class. Use --log-dir, --redirects and --tee.",
		},
	}, lifeFlags(), []Flag{
		{
			Name: "dry-run", Kind: KindBool, Group: groupBefore, Env: []string{}, CommandLineOnly: true,
			Help: "Print what the launch would do, as elasticrun explain does, and start nothing. Exit code 2 or 73 " +
				"means that the launch would be refused.",
		},
		{
			Name: "preflight", Kind: KindBool, Group: groupBefore,
			Help: "Check this machine, as elasticrun doctor does but without importing torch, before the node joins the " +
				"job. If a check fails, the node does not join, and the exit code is 72.",
		},
		{
			Name: "preflight-cmd", Kind: KindString, Placeholder: "CMD", Group: groupBefore, Effect: Executes,
			Help: "Your own check, run by sh -c before the node joins, and again after a failure of one of its workers. " +
				"If it fails, the node does not join, or leaves, with exit code 72.",
		},
		{
			Name: "preflight-timeout", Kind: KindSeconds, Default: "60", Placeholder: "SECONDS", Group: groupBefore,
			parse: as(aboveZero),
			Help:  "How long --preflight-cmd may take before it counts as failed.",
		},

		{
			Name: "notify-cmd", Kind: KindString, Placeholder: "CMD", Group: groupObserve, Effect: Executes,
			parse: as(parseNotBlank),
			Help: "Run by sh -c with one JSON document on its stdin when the job has ended, was restarted, has lost a node, " +
				"hangs or is preempted. The node of rank 0 runs it. It may take 10 seconds, and the job does not wait for it.",
		},
		{
			Name: "status-addr", Kind: KindString, Placeholder: "HOST:PORT", Group: groupObserve, parse: as(parseStatusAddr),
			Help: "Serve this node's status over HTTP: /healthz, /readyz, /status and /metrics. :PORT serves this " +
				"machine only; give an address or 0.0.0.0 to serve others. Port 0 takes a free port. Default: not " +
				"served.",
		},
		{
			Name: "event-log", Kind: KindString, Placeholder: "FILE", Group: groupObserve, Effect: Writes,
			parse: as(parseEventLog),
			Help: "Append the job's events to FILE as JSON lines. ${hostname} and ${run_id} are replaced, for nodes " +
				"that share a disk.",
		},
		{
			Name: "report", Kind: KindString, Placeholder: "FILE", Group: groupObserve, Effect: Writes,
			Help: "Write how the job ended to FILE as JSON. ${hostname}, ${node_rank} and ${run_id} are replaced, for " +
				"nodes that share a disk.",
		},
		{
			Name: "event-log-handler", Kind: KindString, Default: "null", Placeholder: "NAME",
			Group: groupObserve, Torchrun: true,
			Values: []string{"null", "console"}, parse: as(parseEventHandler),
			Help: "Where torch's events are written: null (nowhere) or console. dynamic_rendezvous means null.",
		},

		{
			Name: "config", Kind: KindString, Placeholder: "FILE", Group: groupLauncher, Effect: Reads, CommandLineOnly: true,
			Help: "Config file. Default: elasticrun.yaml in the working directory, else elasticrun/elasticrun.yaml in " +
				"the user's config folder, if it exists.",
		},
		{
			Name: "log-format", Kind: KindString, Default: "auto", Placeholder: "FORMAT", Group: groupLauncher,
			Values: []string{"auto", "console", "json"}, parse: as(oneOf("auto", "console", "json")),
			Help: "Format of elasticrun's own log on stderr: console, json, or auto, which is console with colors on a " +
				"terminal.",
		},
		{
			Name: "log-level", Kind: KindString, Default: "warning", Placeholder: "LEVEL", Group: groupLauncher,
			parse:  as(parseLevel),
			Values: []string{"trace", "debug", "info", "warning", "error", "critical"},
			Env:    []string{"LOGLEVEL"},
			Help:   "Level of elasticrun's own log: trace, debug, info, warning, error or critical.",
		},
		{
			Name: "print-completion", Kind: KindAction, Placeholder: "SHELL", Group: groupLauncher, Torchrun: true,
			CommandLineOnly: true, Values: Shells(),
			Help: "Print the completion script of a shell, as elasticrun completion does: bash, zsh, tcsh, fish or " +
				"powershell.",
		},
		{
			Name: "help", Short: "h", Kind: KindAction, Group: groupLauncher, Torchrun: true, CommandLineOnly: true,
			Help: "Show this text.",
		},
		{
			Name: "version", Kind: KindAction, Group: groupLauncher, CommandLineOnly: true,
			Help: "Show the version.",
		},
	}))
}

// fillEnv sets the variable of every flag that does not name its own: PET_<NAME> for torchrun's flags, and
// ELASTICRUN_<NAME> for the others. In torchrun --logs-specs and --numa-binding have no variable, so they have none
// here.
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
