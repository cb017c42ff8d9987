package events

import (
	"maps"
	"strings"
	"sync"
	"time"
)

// Series summarizes the values of one metric.
type Series struct {
	Count int     // number of values
	Sum   float64 // of all values
	Last  float64 // the newest value
}

// Metrics is a sink that keeps the metrics of torch 2.14: those of its prof decorator
// (torch/distributed/elastic/metrics/api.py) and those of SimpleElasticAgent
// (torch/distributed/elastic/agent/server/api.py). Their names are torch's, but the names of profiled methods lack the
// class and the underscore: "SimpleElasticAgent._rendezvous.success" is "rendezvous.success". _monitor_workers, which
// polls, has no counterpart. The series of remaining_restarts and flakiness also have a value for each round.
//
// Metrics keeps one [Series] per name, so its size does not grow with time. The zero value is ready to use. It may be
// read while events arrive.
type Metrics struct {
	mu     sync.Mutex
	series map[string]Series
}

// Get returns the series with that name; the zero value if there is none.
func (m *Metrics) Get(name string) Series {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.series[name]
}

// All returns a copy of all series by name.
func (m *Metrics) All() map[string]Series {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.series)
}

// Emit derives metrics from e.
func (m *Metrics) Emit(e Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	workers := "workers." + e.Group.Role + "."
	remaining := max(0, e.Group.Budget-e.Group.Restarts) // with a restart window there may be more
	switch e.Kind {
	case KindStep:
		m.prof(e.Step, e)
	case KindRound:
		m.prof(StepAssign, e)
		m.put(workers+"remaining_restarts", float64(remaining))
		m.put(workers+"flakiness", float64(flakiness(false, remaining, e.Group.Budget)))
	case KindState:
		m.put(workers+"remaining_restarts", float64(remaining))
		m.put(workers+strings.ToLower(e.State), 1)
	case KindRun:
		m.prof(StepRun, e)
		if e.RawError != "" {
			return
		}
		failed, retried := e.State == "FAILED", e.Group.Restarts > 0
		m.put(workers+"flakiness", float64(flakiness(failed, remaining, e.Group.Budget)))
		m.put(workers+"run_total", 1)
		m.put(workers+"run_success_with_retries", number(!failed && retried))
		m.put(workers+"run_success_no_retries", number(!failed && !retried))
		m.put(workers+"run_failed_with_retries", number(failed && retried))
		m.put(workers+"run_failed_no_retries", number(failed && !retried))
	}
}

// prof puts what torch's prof decorator puts for a method that has returned.
func (m *Metrics) prof(method string, e Event) {
	if e.RawError == "" {
		m.put(method+".success", 1)
	} else {
		m.put(method+".failure", 1)
	}
	m.put(method+".duration.ms", float64(e.Duration)/float64(time.Millisecond))
}

// put adds a value to a series. The caller holds mu.
func (m *Metrics) put(name string, value float64) {
	if m.series == nil {
		m.series = make(map[string]Series)
	}
	s := m.series[name]
	m.series[name] = Series{Count: s.Count + 1, Sum: s.Sum + value, Last: value}
}

// flakiness is torch's measure in percent: 0 for a run without restarts, 100 for a run that failed.
func flakiness(failed bool, remaining, budget int) int {
	if failed {
		return 100
	}
	return int(100 - 100*float64(remaining+1)/float64(budget+1))
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
