package events

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Series is what was put under one metric name.
type Series struct {
	Count int     // how many values
	Sum   float64 // of all values
	Last  float64 // the newest value
}

// Metrics is a sink for metrics that can be read while it is written. It keeps
// one [Series] a name, so its size depends on the names only. Its zero value is
// ready.
type Metrics struct {
	mu     sync.Mutex
	series map[string]Series
}

// Put adds value to the series name (seed 002, put_metric).
func (m *Metrics) Put(name string, value float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.series == nil {
		m.series = make(map[string]Series)
	}
	s := m.series[name]
	m.series[name] = Series{Count: s.Count + 1, Sum: s.Sum + value, Last: value}
}

// Get returns the series name; its zero value where nothing was put.
func (m *Metrics) Get(name string) Series {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.series[name]
}

// Names returns the names of all series, sorted.
func (m *Metrics) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.series))
}

// Prof runs f and puts `<method>.success` or `<method>.failure` and
// `<method>.duration.ms` (seed 002, the prof decorator). It returns f's error.
func (m *Metrics) Prof(method string, f func() error) error {
	start := time.Now()
	err := f()
	m.Ran(method, time.Since(start), err)
	return err
}

// Ran puts what [Metrics.Prof] puts, for a method that was measured elsewhere.
func (m *Metrics) Ran(method string, took time.Duration, err error) {
	if err == nil {
		m.Put(method+".success", 1)
	} else {
		m.Put(method+".failure", 1)
	}
	m.Put(method+".duration.ms", float64(took)/float64(time.Millisecond))
}
