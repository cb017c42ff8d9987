package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/elasticrun/elasticrun/internal/nearest"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/rdzvconf"
)

// LocalEndpoint is the endpoint of agents of one user on one machine, which meet without a port.
const LocalEndpoint = "local"

// isLocal reports whether the agents of a job of several nodes meet without a port.
func (in rendezvousFlags) isLocal() bool {
	return in.Endpoint == LocalEndpoint && in.MaxNodes > 1 && !in.Standalone
}

// MeantLocal asks a user who may have misspelled the local endpoint.
const MeantLocal = "did you mean local, for agents in several terminals of this machine?"

// IsNearLocal reports whether the user may have meant a local endpoint and misspelled it: the endpoint is a short name
// without a port. A host may have that name.
func (r *Rendezvous) IsNearLocal() bool {
	host := strings.ToLower(r.Endpoint)
	return r.Backend == rdzv.BackendC10d && !r.Local && !strings.ContainsAny(host, ".:") &&
		nearest.Of(LocalEndpoint, []string{host}) != ""
}

// checkLocal refuses what contradicts a local endpoint: flags of other backends, and those that choose a host.
func checkLocal(r *reader, in rendezvousFlags, items []rdzvconf.Item) {
	const name = "rdzv-endpoint"
	if host, _, hasPort := strings.Cut(in.Endpoint, ":"); hasPort && host == LocalEndpoint && !in.Standalone {
		r.fail(name, "takes no port: write --rdzv-endpoint=local; for a host of that name give its address")
	}
	if !in.isLocal() {
		return
	}
	endpoint := r.settings[name].Where()
	if in.Backend != "" && in.Backend != rdzv.BackendC10d {
		r.fail("rdzv-backend", "contradicts "+endpoint+", which needs the default backend, c10d: leave one of them out")
	}
	for _, other := range []struct{ flag, why string }{
		{"node-rank", "whose agents agree on their ranks"},
		{"master-addr", "whose workers meet at 127.0.0.1"},
		{"master-port", "whose workers take a free port, or --worker-store-port"},
		{"local-addr", "whose workers meet at 127.0.0.1"},
	} {
		if r.given(other.flag) {
			r.fail(other.flag, "contradicts "+endpoint+", "+other.why+": leave one of them out")
		}
	}
	if slices.ContainsFunc(items, func(item rdzvconf.Item) bool { return item.Key == "is_host" && !item.Unshown }) {
		r.fail("rdzv-conf",
			"is_host contradicts "+endpoint+", where the first agent hosts the rendezvous: leave one of them out")
	}
}

// checkOneMachine refuses a local endpoint for agents that the scheduler has started on several machines.
func (in *inference) checkOneMachine() {
	const name = "rdzv-endpoint"
	nodes := in.facts.Nodes
	if in.text(name) == LocalEndpoint && in.high > 1 && nodes.Is > 1 && !in.facts.OneMachine && in.facts.Launch == nil {
		in.fail(name, fmt.Sprintf("is for agents on one machine, but the scheduler has started them on %d (%s): "+
			"name one node, or leave the endpoint out", nodes.Is, nodes.Source))
	}
}

// maxScriptInRunID is how much of the script's name a run id shows, in bytes.
const maxScriptInRunID = 32

// localRunID returns the default run id at a local endpoint. It is derived from the command and its folder, so agents
// of the same command in the same folder meet without being given a run id. dir is the folder, without links.
func (c *Config) localRunID(dir string) string {
	program, args := c.Command("python")
	sum := sha256.Sum256([]byte(strings.Join(append([]string{dir, program}, args...), "\x00")))
	visible := func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}
	name := strings.Map(visible, strings.TrimSuffix(filepath.Base(c.Script), ".py"))
	name = cmp.Or(strings.Trim(name[:min(len(name), maxScriptInRunID)], ".-"), "job")
	return name + "-" + hex.EncodeToString(sum[:6])
}
