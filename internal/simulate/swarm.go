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

// swarm is all agents of one process.
type swarm struct {
	config *config
	agents map[int]*agent
	random *rand.Rand
	log    zerolog.Logger
	living sync.WaitGroup

	mu   sync.Mutex
	news news
	some chan struct{} // receives a value when there is news
}

// Agents is the agents' process: it does what the orders that it reads from in say and writes to out what comes of it, until in ends. What is left
// of agents a moment later ends with the process.
func Agents(ctx context.Context, in io.Reader, out io.Writer, log zerolog.Logger) error {
	orders, heard := gob.NewDecoder(in), gob.NewEncoder(out)
	var first order
	if err := orders.Decode(&first); err != nil || first.Config == nil {
		return fmt.Errorf("no configuration of the agents: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := &swarm{
		config: first.Config, agents: map[int]*agent{}, random: rand.New(rand.NewPCG(first.Config.Seed, 1)), log: log,
		some: make(chan struct{}, 1),
	}
	var telling sync.WaitGroup
	telling.Go(func() { s.report(ctx, heard) })
	err := s.obey(ctx, orders)
	cancel(errGone)
	for _, a := range s.agents {
		a.cable.pull()
	}
	telling.Wait()
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

// obey does what it is told to.
func (s *swarm) obey(ctx context.Context, orders *gob.Decoder) error {
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read what the agents are to do: %w", err)
		}
		switch o.Verb {
		case verbJoin:
			for _, n := range o.Agents {
				if err := s.start(ctx, n); err != nil {
					return err
				}
			}
		case verbUsage:
			u, err := usage()
			if err != nil {
				return err
			}
			s.tell(news{Usage: &u})
		default:
			for _, n := range o.Agents {
				s.agents[n].do(o.Verb)
			}
		}
	}
}

// maxNproc is how many workers an agent has at most.
const maxNproc = 8

// start starts an agent.
func (s *swarm) start(ctx context.Context, n int) error {
	a, err := newAgent(s.config, n, 1+s.random.IntN(maxNproc), s.tell, s.log)
	if err != nil {
		return err
	}
	ctx, a.cancel = context.WithCancelCause(ctx)
	s.agents[n] = a
	s.living.Go(func() { a.live(ctx) })
	return nil
}

// do lets something happen to an agent.
func (a *agent) do(v verb) {
	switch v {
	case verbKill:
		a.gone.Store(true)
		a.cable.pull()
		a.cancel(errGone)
	case verbCut:
		a.gone.Store(true)
		a.cable.cut()
	case verbLeave:
		a.gone.Store(true)
		fallthrough
	default:
		a.orders <- v // there is room: it is told one thing in a round
	}
}

// tell adds to what is to be reported.
func (s *swarm) tell(n news) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.news.Entries = append(s.news.Entries, n.Entries...)
	s.news.Stops = append(s.news.Stops, n.Stops...)
	s.news.Ends = append(s.news.Ends, n.Ends...)
	if n.Usage != nil {
		s.news.Usage = n.Usage
	}
	select {
	case s.some <- struct{}{}:
	default:
	}
}

// gathering is how long news waits for more, so that the store's process is not kept from its work by every single agent.
const gathering = time.Millisecond

// report reports what there is.
func (s *swarm) report(ctx context.Context, out *gob.Encoder) {
	for {
		select {
		case <-s.some:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(gathering):
		case <-ctx.Done():
		}
		s.mu.Lock()
		n := s.news
		s.news = news{}
		s.mu.Unlock()
		if err := out.Encode(n); err != nil {
			s.log.Debug().Err(err).Msg("nobody hears of the agents any more")
			return
		}
	}
}
