package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// preemptFlags returns the flags for jobs whose nodes the scheduler takes away.
func preemptFlags() []Flag {
	return []Flag{
		{
			Name: "preempt-signals", Kind: KindString, Placeholder: "SIG,...", Group: groupLife, parse: as(parsePreemptSignals),
			Help: "When any node's launcher gets one of these signals, such as USR1, the workers of all nodes get it and " +
				"save, and the job ends with --preempt-exit-code.",
		},
		{
			Name: "preempt-grace", Kind: KindSeconds, Default: "60", Placeholder: "SECONDS", Group: groupLife,
			parse: as(parseSeconds),
			Help: "How long the workers of a preempted job may take to save and exit by themselves, before SIGTERM and " +
				"--shutdown-timeout. It is shorter if --preempt-notice or Slurm says that the node is taken away before.",
		},
		{
			Name: "preempt-notice", Kind: KindSeconds, Placeholder: "SECONDS", Group: groupLife, parse: as(parseSeconds),
			Help: "How long after the signal the scheduler takes the node away: Kubernetes' terminationGracePeriodSeconds. " +
				"Default: 30 in Kubernetes, the end of the job in Slurm, else unknown.",
		},
		{
			Name: "preempt-exit-code", Kind: KindInt, Default: "79", Placeholder: "CODE", Group: groupLife,
			parse: as(between(1, 255)),
			Help: "The exit code of a preempted job, on all nodes. It means: run the job again. If all workers had written " +
				"finished into $ELASTICRUN_CONTROL_FILE, the job has succeeded.",
		},
		{
			Name: "on-sigterm", Kind: KindString, Default: "leave", Placeholder: "ACTION", Group: groupLife,
			Values: []string{"leave", "preempt"}, parse: as(oneOf("leave", "preempt")),
			Help: "What SIGTERM does: leave stops this node, which ends with 143, and the others go on if enough are left; " +
				"preempt makes it one of --preempt-signals.",
		},
	}
}

// parsePreemptSignals reads a list such as USR1,SIGXCPU.
func parsePreemptSignals(s string) (signals []syscall.Signal, err error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	// The guard passes these signals on.
	possible := []syscall.Signal{
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGHUP, syscall.SIGINT, syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGXCPU,
	}
	for name := range strings.SplitSeq(s, ",") {
		name = strings.ToUpper(strings.TrimSpace(name))
		sig := unix.SignalNum("SIG" + strings.TrimPrefix(name, "SIG"))
		switch {
		case sig == syscall.SIGTERM:
			return nil, errors.New("must not have SIGTERM: use --on-sigterm=preempt")
		case !slices.Contains(possible, sig):
			return nil, fmt.Errorf("has %q; it may have USR1, USR2, HUP, INT, ALRM, VTALRM and XCPU", name)
		case !slices.Contains(signals, sig):
			signals = append(signals, sig)
		}
	}
	return signals, nil
}

// kubernetesNotice is the default of a pod's terminationGracePeriodSeconds.
const kubernetesNotice = 30 * time.Second

// readPreemption checks and completes the settings of preemptions.
func (c *Config) readPreemption(r *reader) {
	const name, notice = "preempt-signals", "preempt-notice"
	for _, sig := range c.PreemptSignals {
		if slices.Contains(c.Signals, sig) {
			r.fail(name, fmt.Sprintf("has %s, on which the launcher stops this node: leave it out here, or take it out "+
				"of --signals-to-handle", unix.SignalName(sig)))
			return
		}
	}
	if c.OnSIGTERM == "preempt" {
		c.PreemptSignals = append(c.PreemptSignals, syscall.SIGTERM)
	}
	if !r.given(notice) && c.Scheduler == "kubernetes" {
		c.PreemptNotice = kubernetesNotice
	}
	if len(c.PreemptSignals) > 0 {
		return
	}
	for _, unused := range []string{"preempt-grace", notice, "preempt-exit-code"} {
		if r.given(unused) {
			r.warn(unused, "has no effect without --preempt-signals or --on-sigterm=preempt")
		}
	}
}
