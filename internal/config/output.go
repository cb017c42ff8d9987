package config

import (
	"errors"
	"fmt"
	"slices"

	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// warnSelections warns of options that select no worker or no line. It trusts global ranks, which are not known yet.
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

// readPrefixTemplate lets torchrun's older variable replace an empty template. In torchrun an empty template counts as
// missing (torch 2.14 torch/distributed/run.py, config_from_args).
func (c *Config) readPrefixTemplate(r *reader, from surroundings) {
	const name = "log-line-prefix-template"
	if older, _ := from.env(workerlog.PrefixTemplateEnv); c.LogLinePrefix == "" && older != "" {
		c.LogLinePrefix = older
		r.settings[name] = Setting{
			Name: name, Value: older, Source: Source{FromEnv, workerlog.PrefixTemplateEnv},
		}
	}
}

func (c *Config) checkOutput(r *reader) {
	if c.LogMaxFiles > 0 && c.LogMaxSize == 0 {
		r.fail("log-max-files", "needs --log-max-size: without it each stream has one file")
	}
	if r.given("logs-specs") {
		r.fail("logs-specs", "names a Python class, which elasticrun cannot load: use --log-dir, --redirects and --tee")
	}
}

func parseFilters(s string) ([]string, error) { return workerlog.ParseFilters(s), nil }

// parseEventLog checks which variables the path uses.
func parseEventLog(s string) (string, error) {
	if workerlog.Substitute(s, nil) != workerlog.Substitute(s, map[string]string{"node_rank": ""}) {
		return "", errors.New("the node's rank is not known yet when the log is opened: use ${hostname} or ${run_id}")
	}
	return s, nil
}

// parseEventHandler reads --event-log-handler. Torch's dynamic_rendezvous writes nothing.
func parseEventHandler(s string) (string, error) {
	name, err := oneOf("null", "console", "dynamic_rendezvous")(s)
	if name == "dynamic_rendezvous" {
		name = "null"
	}
	return name, err
}
