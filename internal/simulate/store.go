package simulate

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
)

const runID = "simulate"

// attempts is how many keep-alives an agent may miss.
const attempts = 3

// store is the job's coordination store and leader, in this process.
type store struct {
	access *elastic.C10d
	addr   string
	log    zerolog.Logger
}

func openStore(ctx context.Context, o Options) (*store, error) {
	hosts := true
	s := &store{log: o.Logger, access: &elastic.C10d{
		RunID: runID, TTL: attempts * o.KeepAlive, Host: "127.0.0.1", Ports: []int{0}, IsHost: &hosts, Hint: -1,
		Logger: o.Logger, Users: &elastic.StoreUsers{Anybody: true}, // as in a job of several machines
	}}
	if _, err := s.access.Open(ctx); err != nil { // this process's own session does not join the job
		return nil, err
	}
	s.addr = s.access.Front().Addr().String()
	return s, nil
}

func (s *store) stats() coord.Stats { return s.access.Server().Stats() }

// close ends the store at once, without waiting until the agents have read the job's result.
func (s *store) close(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cancel()
	if err := s.access.Close(ctx, true); err != nil && !errors.Is(err, context.Canceled) {
		s.log.Warn().Err(err).Msg("closing the store")
	}
}

// elasticJob returns the job's parameters. Each simulated failure causes a restart without delay.
func elasticJob(o Options) elastic.Job {
	rejoin := 2*attempts*o.KeepAlive + 10*time.Second
	return elastic.Job{
		Version: "simulate", Min: o.Min, Max: o.Max, Expected: min(o.Agents, o.Max), MaxRestarts: o.Rounds,
		LastCall: o.Timeout, JoinTimeout: o.Timeout, JoinSettle: time.Second / 2, Rejoin: rejoin,
		Grow: elastic.GrowNow, ResultTTL: o.Timeout,
	}
}
