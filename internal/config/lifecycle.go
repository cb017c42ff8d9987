package config

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elasticrun/elasticrun/internal/exitcode"
	"github.com/elasticrun/elasticrun/internal/printable"
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
			Help: "Like --shutdown-timeout, when workers are stopped for a restart after a failure or a membership change. " +
				"Default: --shutdown-timeout.",
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

func readSignals(r *reader) []syscall.Signal {
	return read(r, "signals-to-handle", func(s string) ([]syscall.Signal, error) {
		signals, unknown, err := parseSignals(s)
		for _, name := range unknown {
			r.warn("signals-to-handle", "skipping the unknown signal "+printable.Quote(name))
		}
		return signals, err
	})
}

// parseSignals reads a list such as SIGTERM,SIGINT. It returns names that this system does not have separately, because
// torchrun skips them with a warning.
func parseSignals(s string) (signals []syscall.Signal, unknown []string, err error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil, nil
	}
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		switch sig := unix.SignalNum(name); {
		case sig == 0:
			unknown = append(unknown, name)
		case sig == unix.SIGKILL || sig == unix.SIGSTOP:
			return nil, nil, fmt.Errorf("%s cannot be handled by any process", name)
		case sig == unix.SIGCHLD || sig == unix.SIGURG:
			return nil, nil, fmt.Errorf("%s is used by the launcher itself", name)
		case !slices.Contains(signals, sig):
			signals = append(signals, sig)
		}
	}
	return signals, unknown, nil
}

// rejoinMargin is added to the time that a node's workers may take to stop.
const rejoinMargin = 10 * time.Second

// readRejoinTimeout reads --rejoin-timeout, whose default and bounds depend on other times.
func (c *Config) readRejoinTimeout(r *reader) time.Duration {
	const name = "rejoin-timeout"
	ttl := c.Rendezvous.TTL()
	back := c.RestartGrace // how long a node may take until it rejoins
	if c.PreflightCmd != "" {
		back += c.PreflightTimeout
	}
	if !r.given(name) {
		return max(back+rejoinMargin, ttl)
	}
	timeout := value[time.Duration](r, name)
	switch {
	case timeout > c.RestartGrace && timeout <= back:
		r.warn(name, "too short for a node that runs --preflight-cmd for the whole --preflight-timeout before it rejoins")
	case timeout <= c.RestartGrace:
		grace := "--restart-grace"
		if !r.given("restart-grace") {
			grace = "--shutdown-timeout"
		}
		r.fail(
			name,
			fmt.Sprintf("must be above %s (%v seconds), the time in which workers may stop", grace, c.RestartGrace.Seconds()),
		)
	case timeout < ttl:
		r.fail(name, fmt.Sprintf("must be at least %v seconds (keep_alive_interval × keep_alive_max_attempt), "+
			"the time after which a silent node is lost", ttl.Seconds()))
	}
	return timeout
}
