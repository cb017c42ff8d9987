package config

import (
	"fmt"
	"slices"

	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// warnSelections warns of options that select workers or lines and match none. Which workers global ranks select is
// not known yet.
func (c *Config) warnSelections(r *reader) {
	ranks := fmt.Sprintf("the local ranks are 0-%d", c.NprocPerNode-1)
	if c.NprocPerNode == 1 {
		ranks = "the only local rank is 0"
	}
	present := func(s workerlog.RankRange) bool { return s.Global || s.First < c.NprocPerNode }
	if c.LocalRanksFilter != nil && !slices.ContainsFunc(c.LocalRanksFilter, present) {
		r.warn("local-ranks-filter", "selects no worker, so the console shows no output: "+ranks)
	}
	for _, o := range []struct {
		name string
		spec workerlog.StreamSpec
	}{{"redirects", c.Redirects}, {"tee", c.Tee}} {
		selects := func(s workerlog.StreamRange) bool { return s.Streams != workerlog.NoStreams }
		mayMatch := func(s workerlog.StreamRange) bool { return selects(s) && present(s.RankRange) }
		if slices.ContainsFunc(o.spec.ByRank, selects) && !slices.ContainsFunc(o.spec.ByRank, mayMatch) {
			r.warn(o.name, "selects no worker: "+ranks)
		}
	}
	c.warnFilters(r, "duplicate-stdout-filters", c.DuplicateStdoutFilters, workerlog.Stdout)
	c.warnFilters(r, "duplicate-stderr-filters", c.DuplicateStderrFilters, workerlog.Stderr)
}

// warnFilters warns of filters for a stream that --tee selects for no worker.
func (c *Config) warnFilters(r *reader, name string, filters []string, stream workerlog.StreamSet) {
	teed := func(s workerlog.StreamRange) bool { return s.Streams.Has(stream) }
	if len(filters) > 0 && !c.Tee.Default.Has(stream) && !slices.ContainsFunc(c.Tee.ByRank, teed) {
		r.warn(name, fmt.Sprintf("selects no line: only lines that --tee selects are copied; give --tee=%d or 3", stream))
	}
}
