package config

import (
	"slices"

	"github.com/elasticrun/elasticrun/internal/exitcode"
)

// lifeFlags returns the flags of the group that says when workers are restarted and stopped.
func lifeFlags() []Flag {
	return append([]Flag{
		{
			Name: "max-restarts", Kind: KindInt, Default: "0", Placeholder: "N", Group: groupLife, Torchrun: true,
			parse: as(between(0, maxRestarts)),
			Help: "How often the workers of all nodes are restarted after a failure before the job fails. Losing a node " +
				"does not count. A program that cannot be executed is not restarted.",
		},
		{
			Name: "restart-window", Kind: KindSeconds, Default: "0", Placeholder: "SECONDS", Group: groupLife,
			parse: as(parseSeconds),
			Help:  "Count only the restarts of the last SECONDS against --max-restarts. 0 counts all.",
		},
		{
			Name: "max-node-losses", Kind: KindInt, Default: "3", Placeholder: "N", Group: groupLife,
			parse: as(between(0, maxRestarts)),
			Help: "Exclude a node that was lost N times in 10 minutes, as long as the job can run without it. 0 never " +
				"excludes.",
		},
		{
			Name: "rejoin-timeout", Kind: KindSeconds, Placeholder: "SECONDS", Group: groupLife, parse: as(parseSeconds),
			Help: "How long a node may take to stop its workers after a membership change; then the job goes on without " +
				"the node. Default: --restart-grace plus 10, plus --preflight-timeout if there is a --preflight-cmd, " +
				"and at least keep_alive_interval times keep_alive_max_attempt.",
		},
		{
			Name: "grow", Kind: KindString, Default: "now", Placeholder: "WHEN", Group: groupLife,
			Values: []string{"now", "next-restart", "never"}, parse: as(oneOf("now", "next-restart", "never")),
			Help: "When a running job admits new nodes, which restarts its workers: now, next-restart (at the next " +
				"restart for any reason) or never.",
		},
		{
			Name: "min-uptime", Kind: KindSeconds, Default: "10", Placeholder: "SECONDS", Group: groupLife,
			parse: as(parseSeconds),
			Help: "If workers fail sooner than this after their start, pause before each further restart; the pauses " +
				"grow. 0 never pauses.",
		},
		{
			Name: "monitor-interval", Kind: KindSeconds, Default: "0.1", Placeholder: "SECONDS",
			Group: groupLife, Torchrun: true,
			parse: as(aboveZero),
			Help:  "Accepted for torchrun's sake and ignored: the launcher notices a worker's exit at once.",
		},
		{
			Name: "signals-to-handle", Kind: KindString, Default: "SIGTERM,SIGINT,SIGHUP,SIGQUIT", Placeholder: "SIG,...",
			Group: groupLife, Torchrun: true,
			Help: "On these signals the launcher forwards the signal to the workers, waits for them and exits, unless " +
				"--on-sigterm says otherwise.",
		},
		{
			Name: "shutdown-timeout", Kind: KindSeconds, Default: "30", Placeholder: "SECONDS", Group: groupLife, Torchrun: true,
			parse: as(parseSeconds),
			Env:   []string{"PET_SHUTDOWN_TIMEOUT", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"},
			Help:  "How long workers may take to stop before SIGKILL when the launcher is told to stop.",
		},
		{
			Name: "restart-grace", Kind: KindSeconds, Placeholder: "SECONDS", Group: groupLife, parse: as(parseSeconds),
			Help: "The same when workers are stopped for a restart, after a failure or a membership change. Default: " +
				"--shutdown-timeout.",
		},
		{
			Name: "error-exit-timeout", Kind: KindSeconds, Default: "60", Placeholder: "SECONDS", Group: groupLife,
			parse: as(parseSeconds),
			Help: "How long a worker that has written its error file may take to exit before it counts as failed. 0 " +
				"waits forever.",
		},
		{
			Name: "exit-barrier-timeout", Kind: KindSeconds, Default: "300", Placeholder: "SECONDS", Group: groupLife,
			parse: as(parseSeconds),
			Env:   []string{"PET_EXIT_BARRIER_TIMEOUT", "TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT"},
			Help: "How long a node whose workers have all exited with 0 waits for the others; then it ends with " +
				"success. A node that hosts a store stays until the job has ended. If the time is given, it leaves after " +
				"at least the keep-alive time; the nodes that still need the store then end with code 75.",
		},
		{
			Name: "exit-code-map", Kind: KindString, Placeholder: "FROM=TO,...", Group: groupLife, parse: as(exitcode.ParseMap),
			Help: "Replace the launcher's exit code, for a scheduler. FROM is a code or a reason: 137=75,rendezvous=99.",
		},
	}, slices.Concat(policyFlags(), preemptFlags(), hangFlags())...)
}

// hangFlags returns the flags of that group about jobs that hang.
func hangFlags() []Flag {
	return []Flag{
		{
			Name: "hang-timeout", Kind: KindSpec, Default: "auto", Placeholder: "SECONDS|auto|off", Group: groupLife,
			Values: []string{"auto", "off"}, parse: as(parseHangTimeout),
			Help: "Suspect a hang when no worker of the job has shown progress for this long, as seen from outside. auto " +
				"waits for 60 seconds or 5 times the longest pause of the job so far, whichever is longer, and only once the " +
				"job has shown a steady rhythm. 0 or off never looks.",
		},
		{
			Name: "hang-action", Kind: KindString, Default: "report", Placeholder: "ACTION", Group: groupLife,
			Values: []string{"report", "restart", "stop"}, parse: as(oneOf("report", "restart", "stop")),
			Help: "What follows a suspected hang: report prints which rank it is and the stacks of all ranks; restart and " +
				"stop do so too, look a second time, and then restart the workers, which is charged as a failure, or end the " +
				"job with code 77. With auto that takes 5 minutes at least.",
		},
		{
			Name: "step-pattern", Kind: KindString, Placeholder: "REGEXP", Group: groupLife, parse: as(parsePattern),
			Help: "A regular expression (RE2) for the lines of workers that name the step of the training. Its first group, " +
				"or the whole match, is a number, as in 'step (\\d+)'. A new step counts as progress.",
		},
	}
}
