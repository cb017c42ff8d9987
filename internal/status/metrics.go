package status

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/elasticrun/elasticrun/pkg/report"
)

// metrics is a prometheus.Collector for one Snapshot. Its labels have few values: states, local ranks and GPU indexes.
type metrics struct {
	s Snapshot

	info, start, state, since          *prometheus.Desc
	round, nodeRank, nodes, world      *prometheus.Desc
	rounds, restarts, most, membership *prometheus.Desc
	failures                           *prometheus.Desc
	up, rank, began, cpu, rss, procs   *prometheus.Desc
	gpuBusy, gpuUsed, gpuTotal         *prometheus.Desc
}

const namespace = "elasticrun_"

func newMetrics(s Snapshot) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(namespace+name, help, labels, nil)
	}
	return &metrics{
		s: s,
		info: desc("info", "The version of elasticrun and the rendezvous backend; always 1.", "version",
			"rdzv_backend"),
		start:      desc("start_time_seconds", "When the launcher was started, as Unix time."),
		state:      desc("state", "1 for the current state of the node, else 0.", "state"),
		since:      desc("state_start_time_seconds", "When the node entered that state, as Unix time."),
		round:      desc("round", "Number of the node's latest round."),
		nodeRank:   desc("node_rank", "Rank of the node in that round."),
		nodes:      desc("nodes", "Number of nodes in that round."),
		world:      desc("world_size", "Number of workers in that round, of all nodes."),
		rounds:     desc("rounds_total", "Rounds that this node took part in."),
		restarts:   desc("restarts_total", "Restarts charged to the job, as far as this node knows."),
		most:       desc("max_restarts", "How many restarts may be charged before the job fails."),
		membership: desc("membership_changes_total", "Rounds of this node that no failure caused, without the first."),
		failures:   desc("worker_failures_total", "Workers of this node that failed."),
		up:         desc("worker_up", "Whether the worker runs.", "local_rank"),
		rank:       desc("worker_rank", "Rank of the worker in the whole job.", "local_rank"),
		began: desc("worker_start_time_seconds", "When the worker was started, as Unix time, while it runs.",
			"local_rank"),
		cpu: desc(
			"worker_cpu_cores",
			"CPU usage of the worker and its descendants since the previous measurement, in cores.",
			"local_rank",
		),
		rss:      desc("worker_resident_memory_bytes", "Resident memory of the worker and its descendants.", "local_rank"),
		procs:    desc("worker_processes", "Number of processes: the worker and its descendants.", "local_rank"),
		gpuBusy:  desc("gpu_utilization_ratio", "Share of recent time in which the GPU was busy, 0 to 1.", "gpu"),
		gpuUsed:  desc("gpu_memory_used_bytes", "Memory of the GPU in use.", "gpu"),
		gpuTotal: desc("gpu_memory_total_bytes", "Memory of the GPU.", "gpu"),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.info, m.start, m.state, m.since, m.round, m.nodeRank, m.nodes, m.world, m.rounds, m.restarts, m.most,
		m.membership, m.failures,
		m.up, m.rank, m.began, m.cpu, m.rss, m.procs, m.gpuBusy, m.gpuUsed, m.gpuTotal,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	s := m.s
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counter := func(d *prometheus.Desc, value int) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value))
	}
	gauge(m.info, 1, s.Version, s.Backend)
	gauge(m.start, seconds(s.Started))
	for _, state := range States() {
		gauge(m.state, truth(s.State == state), string(state))
	}
	gauge(m.since, seconds(s.Since))
	counter(m.rounds, s.Rounds)
	counter(m.restarts, s.Restarts)
	counter(m.membership, s.MembershipChanges)
	counter(m.failures, s.Failures)
	if s.Round != nil && s.NodeRank != nil {
		gauge(m.round, float64(*s.Round))
		gauge(m.nodeRank, float64(*s.NodeRank))
		gauge(m.nodes, float64(s.Nodes))
		gauge(m.world, float64(s.WorldSize))
		gauge(m.most, float64(s.MaxRestarts))
	}
	for _, w := range s.Workers {
		local := strconv.Itoa(w.LocalRank)
		gauge(m.up, truth(w.State == WorkerRunning), local)
		if w.State != WorkerRunning {
			continue
		}
		gauge(m.rank, float64(w.Rank), local)
		gauge(m.began, seconds(w.Since), local)
		if u := w.Usage; u != nil {
			gauge(m.rss, float64(u.RSSBytes), local)
			gauge(m.procs, float64(u.Processes), local)
			if u.CPUPercent != nil {
				gauge(m.cpu, *u.CPUPercent/100, local)
			}
		}
	}
	for _, g := range s.GPUs {
		m.collectGPU(gauge, g)
	}
}

func (m *metrics) collectGPU(gauge func(*prometheus.Desc, float64, ...string), g GPU) {
	index := strconv.Itoa(g.Index)
	if g.UtilizationPercent != nil {
		gauge(m.gpuBusy, float64(*g.UtilizationPercent)/100, index)
	}
	if g.MemoryUsedBytes != nil {
		gauge(m.gpuUsed, float64(*g.MemoryUsedBytes), index)
	}
	if g.MemoryTotalBytes != nil {
		gauge(m.gpuTotal, float64(*g.MemoryTotalBytes), index)
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// seconds returns t as Unix time; 0 for the zero time.
func seconds(t report.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
