package simulate

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// swarm holds all agents of the agents' process.
type swarm struct {
	config *config
	agents map[int]*agent
	random *rand.Rand
	log    zerolog.Logger
	living sync.WaitGroup

	mu      sync.Mutex
	pending update
	queued  chan struct{} // holds one value while pending has updates
}

// Agents runs the agents' process: it reads orders from in and writes updates to out, until in ends. It waits a second
// for the goroutines of its agents; any that are left end with the process.
func Agents(ctx context.Context, in io.Reader, out io.Writer, log zerolog.Logger) error {
	orders, replies := gob.NewDecoder(in), gob.NewEncoder(out)
	var first order
	if err := orders.Decode(&first); err != nil || first.Config == nil {
		return fmt.Errorf("read the configuration of the agents: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := &swarm{
		config: first.Config, agents: map[int]*agent{}, random: rand.New(rand.NewPCG(first.Config.Seed, 1)), log: log,
		queued: make(chan struct{}, 1),
	}
	var sending sync.WaitGroup
	sending.Go(func() { s.send(ctx, replies) })
	err := s.obey(ctx, orders)
	cancel(errGone)
	for _, a := range s.agents {
		a.vanish(ctx)
	}
	sending.Wait()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		s.living.Wait()
	}()
	select {
	case <-gone:
	case <-time.After(time.Second):
	}
	return err
}

// obey carries out orders until they end.
func (s *swarm) obey(ctx context.Context, orders *gob.Decoder) error {
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read an order: %w", err)
		}
		switch o.Verb {
		case verbJoin:
			for _, n := range o.Agents {
				s.start(ctx, n)
			}
		case verbUsage:
			u, err := usage()
			if err != nil {
				return err
			}
			s.queue(update{Usage: &u})
		default:
			for _, n := range o.Agents {
				s.agents[n].do(ctx, o.Verb)
			}
		}
	}
}

// maxNproc bounds the workers of an agent.
const maxNproc = 8

// start starts an agent.
func (s *swarm) start(ctx context.Context, n int) {
	access, link := newAccess(s.config, false, s.log), newFaultLink()
	access.Connect = link.connect
	a := newAgent(s.config, access, n, 1+s.random.IntN(maxNproc), s.queue, s.log)
	a.link = link
	ctx, a.cancel = context.WithCancelCause(ctx)
	s.agents[n] = a
	s.living.Go(func() {
		a.live(ctx)
		_ = a.h.Shutdown(ctx) // an agent that keeps the store waits until the others know that the job has ended
	})
}

// do applies v to the agent.
func (a *agent) do(ctx context.Context, v verb) {
	switch v {
	case verbKill:
		a.gone.Store(true)
		a.vanish(ctx)
		a.cancel(errGone)
	case verbCut:
		a.gone.Store(true)
		a.link.blackhole()
	case verbLeave:
		a.gone.Store(true)
		fallthrough
	default:
		a.orders <- v // never blocks: an agent gets one order in a round
	}
}

// vanish closes all connections of an agent and its part of the store.
func (a *agent) vanish(ctx context.Context) {
	a.link.disconnect()
	ctx, cancel := context.WithCancel(ctx)
	cancel() // it hands nothing over
	_ = a.access.Close(ctx, true)
}

// queue adds n to the updates that send will write.
func (s *swarm) queue(n update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending.Entries = append(s.pending.Entries, n.Entries...)
	s.pending.Stops = append(s.pending.Stops, n.Stops...)
	s.pending.Ends = append(s.pending.Ends, n.Ends...)
	if n.Usage != nil {
		s.pending.Usage = n.Usage
	}
	select {
	case s.queued <- struct{}{}:
	default:
	}
}

// batchDelay is how long an update waits for more, so that the other process does not wake up for each agent.
const batchDelay = time.Millisecond

// send writes the queued updates to out until ctx ends.
func (s *swarm) send(ctx context.Context, out *gob.Encoder) {
	for {
		select {
		case <-s.queued:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(batchDelay):
		case <-ctx.Done():
		}
		s.mu.Lock()
		n := s.pending
		s.pending = update{}
		s.mu.Unlock()
		if err := out.Encode(n); err != nil {
			s.log.Debug().Err(err).Msg("nobody reads the agents' updates any more")
			return
		}
	}
}
