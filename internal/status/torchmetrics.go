package status

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/elasticrun/elasticrun/pkg/events"
)

// groupStates are the states in which an agent may find its worker group when a round is over.
func groupStates() []string { return []string{"init", "healthy", "stopped", "succeeded", "failed"} }

// torchFamilies returns the metrics of torch's agent, as events.Metrics keeps them. docs/status.md lists torch's names.
// Counters start with 0, because Prometheus does not see the increase of a counter that appears with a higher value.
func torchFamilies() []family {
	all := []family{
		{
			name: "agent_steps_total", help: "Steps of the agent that have ended, by outcome: success or failure.",
			labels: []string{"role", "step", "outcome"},
			values: func(s Snapshot, add addFunc) {
				for _, step := range events.Steps() {
					for _, outcome := range []string{"success", "failure"} {
						add(float64(s.Agent[step+"."+outcome].Count), s.role(), step, outcome)
					}
				}
			},
		},
		{
			name:   "worker_group_states_total",
			help:   "How often this node's worker group was in that state when a round was over.",
			labels: []string{"role", "state"},
			values: func(s Snapshot, add addFunc) {
				for _, state := range groupStates() {
					add(float64(s.ofGroup(state).Count), s.role(), state)
				}
			},
		},
		latest("remaining_restarts", "remaining_restarts", "Restarts that may still be charged.", 1),
		latest("flakiness_ratio", "flakiness",
			"Share of the job's attempts that is used up, 0 to 1: 0 without a restart, 1 after a failed run.", 100),
	}
	for _, run := range []struct{ name, help string }{
		{"run_total", "1 when the run has ended in order, else 0."},
		{"run_success_no_retries", "1 when the run has succeeded without a restart, else 0."},
		{"run_success_with_retries", "1 when the run has succeeded after a restart, else 0."},
		{"run_failed_no_retries", "1 when the run has failed without a restart, else 0."},
		{"run_failed_with_retries", "1 when the run has failed after a restart, else 0."},
	} {
		all = append(all, family{
			name: strings.TrimSuffix(run.name, "_total") + "_total", help: run.help, labels: []string{"role"},
			values: func(s Snapshot, add addFunc) { add(s.ofGroup(run.name).Sum, s.role()) },
		})
	}
	return all
}

// latest returns a metric: the newest value of a series of the worker group, divided by a number. It is missing before
// the first value.
func latest(name, series, help string, by float64) family {
	return family{name: name, help: help, labels: []string{"role"}, values: func(s Snapshot, add addFunc) {
		if v := s.ofGroup(series); v.Count > 0 {
			add(v.Last/by, s.role())
		}
	}}
}

// collectDurations collects the times that steps took.
func (m metrics) collectDurations(to chan<- prometheus.Metric) {
	desc := prometheus.NewDesc(namespace+"agent_step_duration_seconds", "Time that the steps of the agent took.",
		[]string{"role", "step"}, nil)
	for _, step := range events.Steps() {
		took := m.s.Agent[step+".duration.ms"]
		to <- prometheus.MustNewConstSummary(desc, uint64(took.Count), took.Sum/1000, nil, m.s.role(), step)
	}
}

// ofGroup returns a series of the worker group.
func (s Snapshot) ofGroup(name string) events.Series { return s.Agent["workers."+s.Role+"."+name] }

// role returns the role as a label, which must be UTF-8.
func (s Snapshot) role() string { return strings.ToValidUTF8(s.Role, "\uFFFD") }
