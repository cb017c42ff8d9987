package status

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/elasticrun/elasticrun/pkg/report"
)

const namespace = "elasticrun_"

// family is a metric with all its label values.
type family struct {
	name, help string // the name of a counter ends with _total
	labels     []string
	values     func(s Snapshot, add addFunc)
}

// addFunc adds a value with its label values.
type addFunc func(value float64, labels ...string)

// families returns all metrics that are one number for each set of labels. Labels have few values: states, steps, local
// ranks, GPU indexes and the node's one role.
func families() []family {
	all := []family{
		{
			name: "info", help: "The version of elasticrun and the rendezvous backend; always 1.",
			labels: []string{"version", "rdzv_backend"},
			values: func(s Snapshot, add addFunc) { add(1, s.Version, s.Backend) },
		},
		{
			name: "state", help: "1 for the current state of the node, else 0.", labels: []string{"state"},
			values: func(s Snapshot, add addFunc) {
				for _, state := range States() {
					add(truth(s.State == state), string(state))
				}
			},
		},
		ofNode("start_time_seconds", "When the launcher was started, as Unix time.",
			func(s Snapshot) float64 { return unixSeconds(s.Started) }),
		ofNode("state_start_time_seconds", "When the node entered that state, as Unix time.",
			func(s Snapshot) float64 { return unixSeconds(s.Since) }),
		ofNode("rounds_total", "Rounds that this node took part in.",
			func(s Snapshot) float64 { return float64(s.Rounds) }),
		ofNode("restarts_total", "Restarts charged to the job, as far as this node knows.",
			func(s Snapshot) float64 { return float64(s.Restarts) }),
		ofNode("membership_changes_total", "Rounds of this node that no failure caused, without the first.",
			func(s Snapshot) float64 { return float64(s.MembershipChanges) }),
		ofNode("worker_failures_total", "Workers of this node that failed.",
			func(s Snapshot) float64 { return float64(s.Failures) }),
		ofNode("hang_suspected", "1 while no worker of the job makes progress, as far as this node knows; else 0.",
			func(s Snapshot) float64 { return truth(s.Hang != nil) }),
		ofRound("round", "Number of the node's latest round.",
			func(s Snapshot) float64 { return float64(*s.Round) }),
		ofRound("node_rank", "Rank of the node in that round.",
			func(s Snapshot) float64 { return float64(*s.NodeRank) }),
		ofRound("nodes", "Number of nodes in that round.",
			func(s Snapshot) float64 { return float64(s.Nodes) }),
		ofRound("world_size", "Number of workers in that round, of all nodes.",
			func(s Snapshot) float64 { return float64(s.WorldSize) }),
		ofRound("max_restarts", "How many restarts may be charged before the job fails.",
			func(s Snapshot) float64 { return float64(s.MaxRestarts) }),
	}
	all = append(all, goodputFamilies()...)
	all = append(all, workerFamilies()...)
	all = append(all, gpuFamilies()...)
	return append(all, torchFamilies()...)
}

// goodputFamilies returns the metrics of the whole job, as this node knows it. They are missing before the first round.
func goodputFamilies() []family {
	return []family{
		{
			name: "goodput_ratio", help: "Share of the time of all workers of the job in which they ran, without what was lost.",
			values: func(s Snapshot, add addFunc) {
				if g := s.Goodput; g != nil && g.Total() > 0 {
					add(g.Share())
				}
			},
		},
		{
			name: "goodput_worker_seconds", help: "How all workers of the job have used their time, in parts.",
			labels: []string{"part"},
			values: func(s Snapshot, add addFunc) {
				if s.Goodput == nil {
					return
				}
				for _, p := range s.Goodput.Parts() {
					add(p.Seconds, p.Name)
				}
			},
		},
	}
}

func ofNode(name, help string, value func(Snapshot) float64) family {
	return family{name: name, help: help, values: func(s Snapshot, add addFunc) { add(value(s)) }}
}

// ofRound returns a metric that is missing before the node's first round.
func ofRound(name, help string, value func(Snapshot) float64) family {
	return family{name: name, help: help, values: func(s Snapshot, add addFunc) {
		if s.Round != nil && s.NodeRank != nil {
			add(value(s))
		}
	}}
}

func workerFamilies() []family {
	// of returns a metric with a value for each worker, except those for which value returns nil.
	of := func(name, help string, value func(Worker) *float64) family {
		return family{name: name, help: help, labels: []string{"local_rank"}, values: func(s Snapshot, add addFunc) {
			for _, w := range s.Workers {
				if v := value(w); v != nil {
					add(*v, strconv.Itoa(w.LocalRank))
				}
			}
		}}
	}
	running := func(value func(Worker) *float64) func(Worker) *float64 {
		return func(w Worker) *float64 {
			if !w.alive() {
				return nil
			}
			return value(w)
		}
	}
	used := func(value func(Usage) *float64) func(Worker) *float64 {
		return running(func(w Worker) *float64 {
			if w.Usage == nil {
				return nil
			}
			return value(*w.Usage)
		})
	}
	return []family{
		of("worker_up", "Whether the worker runs.", func(w Worker) *float64 { return new(truth(w.alive())) }),
		of("worker_rank", "Rank of the worker in the whole job.",
			running(func(w Worker) *float64 { return new(float64(w.Rank)) })),
		of("worker_start_time_seconds", "When the worker was started, as Unix time, while it runs.",
			running(func(w Worker) *float64 { return new(unixSeconds(w.Since)) })),
		of("worker_resident_memory_bytes", "Resident memory of the worker and its descendants.",
			used(func(u Usage) *float64 { return new(float64(u.RSSBytes)) })),
		of("worker_processes", "Number of processes: the worker and its descendants.",
			used(func(u Usage) *float64 { return new(float64(u.Processes)) })),
		of("worker_cpu_cores", "CPU usage of the worker and its descendants since the previous measurement, in cores.",
			used(func(u Usage) *float64 { return divided(u.CPUPercent, 100) })),
	}
}

func gpuFamilies() []family {
	of := func(name, help string, value func(GPU) *float64) family {
		return family{name: name, help: help, labels: []string{"gpu"}, values: func(s Snapshot, add addFunc) {
			for _, g := range s.GPUs {
				if v := value(g); v != nil {
					add(*v, strconv.Itoa(g.Index))
				}
			}
		}}
	}
	return []family{
		of("gpu_utilization_ratio", "Share of recent time in which the GPU was busy, 0 to 1.",
			func(g GPU) *float64 { return divided(g.UtilizationPercent, 100) }),
		of("gpu_memory_used_bytes", "Memory of the GPU in use.",
			func(g GPU) *float64 { return divided(g.MemoryUsedBytes, 1) }),
		of("gpu_memory_total_bytes", "Memory of the GPU.",
			func(g GPU) *float64 { return divided(g.MemoryTotalBytes, 1) }),
	}
}

// metrics is a prometheus.Collector for one Snapshot.
type metrics struct{ s Snapshot }

// Describe implements prometheus.Collector.
func (m metrics) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, to) }

// Collect implements prometheus.Collector.
func (m metrics) Collect(to chan<- prometheus.Metric) {
	for _, f := range families() {
		desc, kind := prometheus.NewDesc(namespace+f.name, f.help, f.labels, nil), prometheus.GaugeValue
		if strings.HasSuffix(f.name, "_total") {
			kind = prometheus.CounterValue
		}
		f.values(m.s, func(value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
		})
	}
	m.collectDurations(to)
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// divided returns n / by; nil if n is nil.
func divided[T int | int64 | float64](n *T, by float64) *float64 {
	if n == nil {
		return nil
	}
	return new(float64(*n) / by)
}

// unixSeconds returns t as Unix time; 0 for the zero time.
func unixSeconds(t report.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
