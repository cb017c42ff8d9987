package simulate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

const (
	loopback = "127.0.0.1"
	// attempts is how many keep-alives an agent may miss.
	attempts = 3
)

// store is the job's coordination store and leader, in this process.
type store struct {
	access *elastic.C10d
	// host is the job's first agent if several agents keep the store. It is in this process too, and leads.
	host   *agent
	living sync.WaitGroup // of host
	log    zerolog.Logger
}

// openStore opens the store and sets its port in c.
func openStore(ctx context.Context, c *config, log zerolog.Logger) (*store, error) {
	s := &store{log: log, access: newAccess(c, true, log)}
	if _, err := s.access.Open(ctx); err != nil { // this process's own session does not join the job
		return nil, err
	}
	if front := s.access.Front(); front != nil {
		c.Port = front.Port()
		return s, nil
	}
	addr, err := s.access.JoinStore(ctx, nil) // Open has joined it already; this returns the address
	if err != nil {
		return nil, err
	}
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("address of the store: %w", err)
	}
	c.Port = int(at.Port())
	return s, nil
}

// newAccess returns an agent's access to the store.
func newAccess(c *config, hosts bool, log zerolog.Logger) *elastic.C10d {
	return &elastic.C10d{
		RunID: c.RunID, TTL: attempts * c.KeepAlive, Host: loopback, Ports: []int{c.Port}, IsHost: &hosts, Hint: -1,
		Voters: c.Voters, MinNodes: c.Job.Min, MaxNodes: c.Job.Max, LocalAddr: loopback, Logger: log,
		Linger: c.Job.ResultTTL,
		Users:  &elastic.StoreUsers{Anybody: true}, // as in a job of several machines
	}
}

// carryOut carries out a verb for the host.
func (s *store) carryOut(ctx context.Context, v verb) {
	if v != verbJoin {
		s.host.do(ctx, v)
		return
	}
	ctx, s.host.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	s.living.Go(func() {
		s.host.live(ctx)
		<-ctx.Done() // the store stays until the other agents know of the job's end
		_ = s.host.h.Shutdown(ctx)
	})
}

// close ends the store at once, without waiting until the agents have read the job's result.
func (s *store) close(ctx context.Context) {
	if s.host != nil && s.host.cancel != nil {
		s.host.cancel(errGone)
	}
	s.living.Wait()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cancel()
	if err := s.access.Close(ctx, true); err != nil && !errors.Is(err, context.Canceled) {
		s.log.Warn().Err(err).Msg("closing the store")
	}
}

// elasticJob returns the job's parameters. Each simulated failure causes a restart without delay.
func elasticJob(o Options) rounds.Job {
	rejoin := 2*attempts*o.KeepAlive + 10*time.Second
	return rounds.Job{
		Version: "simulate", Min: o.Min, Max: o.Max, Expected: min(o.Agents, o.Max), MaxRestarts: o.Rounds,
		LastCall: o.Timeout, JoinTimeout: o.Timeout, JoinSettle: time.Second / 2, Rejoin: rejoin,
		Grow: rounds.GrowNow, ResultTTL: o.Timeout,
	}
}
