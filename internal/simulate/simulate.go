// Package simulate runs a large rendezvous on one machine: the real store and leader in this process, and any number of real agents' handlers
// in another, each with a connection of its own, whose workers are simulated. It measures what that takes, and checks what they were told.
package simulate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Options say what is simulated. Counts are at least 0 and leave the job its least number of nodes.
type Options struct {
	// Agents begin the job; at least 1.
	Agents int
	// Min and Max are the number of nodes in a round; agents beyond Max are spares.
	Min, Max int
	// Rounds is how many times the faults below happen, one after the other.
	Rounds int
	// FailAfter is when a worker fails, after its round has begun; nil: none does.
	FailAfter *time.Duration
	// Kill agents vanish: their connections are closed without a word. Leave agents say so before. Cut agents fall silent, their
	// connections open. Join agents come late.
	Kill, Leave, Cut, Join int
	// KeepAlive is the time between two proofs of an agent's life; one that misses three is lost.
	KeepAlive time.Duration
	// Timeout is how long each step may take.
	Timeout time.Duration
	// Seed chooses who is hit, and how many workers each agent has.
	Seed uint64
	// Step is called after each step.
	Step   func(Step)
	Logger zerolog.Logger
}

// Step is one thing that happened to the job, and what it took until all was in order again.
type Step struct {
	Name string `json:"name"`
	// Agents is how many it happened to.
	Agents int `json:"agents"`
	// Round and Nodes are what came of it.
	Round int `json:"round"`
	Nodes int `json:"nodes"`
	// Stopped is when the last node was told to stop its workers, and Seconds when the last had its new rank; both from the beginning
	// of the step. Connecting is included.
	Stopped float64 `json:"stopped_seconds,omitempty"`
	Seconds float64 `json:"seconds"`
	// Received and Sent are what the store had to do for it.
	Received coord.Traffic `json:"received"`
	Sent     coord.Traffic `json:"sent"`
}

// Result is what a simulation has shown.
type Result struct {
	Steps []Step `json:"steps"`
	// Store is this process with store and leader, Swarm the agents' process.
	Store Usage `json:"store"`
	Swarm Usage `json:"swarm"`
}

// job is a simulation that runs.
type job struct {
	opts   Options
	store  *store
	swarm  *process
	ledger *ledger
	random *rand.Rand
	live   int // agents that take part, spares included
	joined int // agents so far
	round  int // the last that was complete
	result Result
}

// Run simulates. When it returns, nothing that it has started is left. Its errors say what was not as it should be; when ctx ends it
// returns its cause.
func Run(ctx context.Context, o Options, command []string) (result Result, err error) {
	j := &job{opts: o, ledger: newLedger(), random: rand.New(rand.NewPCG(o.Seed, 0)), round: -1}
	defer func() {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	if j.store, err = openStore(ctx, o); err != nil {
		return result, err
	}
	defer j.store.close(ctx)
	if j.swarm, err = startProcess(ctx, command); err != nil {
		return result, err
	}
	defer j.swarm.end()
	first := order{Config: &config{
		Addr: j.store.addr, Job: elasticJob(o), KeepAlive: o.KeepAlive, Seed: o.Seed,
	}}
	if err := j.swarm.send(first); err != nil {
		return result, err
	}
	err = j.run(ctx)
	if err == nil {
		err = j.measure(ctx)
	}
	return j.result, err
}

// run makes the steps.
func (j *job) run(ctx context.Context) error {
	o := j.opts
	steps := []func(context.Context) error{j.begin}
	for range o.Rounds {
		if o.FailAfter != nil {
			steps = append(steps, j.failWorker)
		}
		for _, s := range []struct {
			count int
			step  func(context.Context) error
		}{{o.Kill, j.kill}, {o.Leave, j.leave}, {o.Cut, j.cut}, {o.Join, j.join}} {
			if s.count > 0 {
				steps = append(steps, s.step)
			}
		}
	}
	for _, step := range append(steps, j.finish) {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (j *job) begin(ctx context.Context) error {
	return j.step(ctx, "joined and ranked", j.opts.Agents, j.enter)
}

func (j *job) join(ctx context.Context) error {
	return j.step(ctx, "came late", j.opts.Join, j.enter)
}

// enter starts agents.
func (j *job) enter(s *Step) (order, func() error) {
	from := j.joined
	j.joined += s.Agents
	j.live += s.Agents
	return order{Verb: verbJoin, Agents: sequence(from, j.joined)}, nil
}

func (j *job) failWorker(ctx context.Context) error {
	select {
	case <-time.After(*j.opts.FailAfter):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return j.step(ctx, "had a worker fail", 1, func(s *Step) (order, func() error) {
		return order{Verb: verbFail, Agents: j.victims(s)}, nil
	})
}

func (j *job) kill(ctx context.Context) error {
	return j.lose(ctx, "vanished", verbKill, j.opts.Kill)
}

func (j *job) leave(ctx context.Context) error {
	return j.lose(ctx, "left", verbLeave, j.opts.Leave)
}

func (j *job) cut(ctx context.Context) error {
	return j.lose(ctx, "fell silent", verbCut, j.opts.Cut)
}

// lose takes agents out of the round. Those that are cut off must have stopped their workers by themselves before the others go on.
func (j *job) lose(ctx context.Context, name string, v verb, count int) error {
	return j.step(ctx, name, count, func(s *Step) (order, func() error) {
		victims, round := j.victims(s), j.round
		j.live -= s.Agents
		check := func() error {
			for _, v := range victims {
				if !j.ledger.stopped(v, round) {
					return fmt.Errorf("agent %d was cut off, and its workers of round %d ran on beside round %d", v, round, s.Round)
				}
			}
			return nil
		}
		if v != verbCut {
			check = nil
		}
		return order{Verb: v, Agents: victims}, check
	})
}

// victims are as many nodes of the round as the step is about.
func (j *job) victims(s *Step) []int {
	members := j.ledger.members(j.round)
	s.Agents = min(s.Agents, len(members))
	j.random.Shuffle(len(members), func(a, b int) { members[a], members[b] = members[b], members[a] })
	return members[:s.Agents]
}

// step gives an order and waits until every agent that can be in the next round is in it. check, if there is one, is called then.
func (j *job) step(ctx context.Context, name string, agents int, prepare func(*Step) (o order, check func() error)) error {
	s := Step{Name: name, Agents: agents, Round: j.round, Nodes: len(j.ledger.members(j.round))}
	before := j.store.stats()
	o, check := prepare(&s)
	want := min(j.live, j.opts.Max)
	ctx, cancel := context.WithTimeoutCause(ctx, j.opts.Timeout, fmt.Errorf(
		"%w: %d agents %s, and %v later no round of %d nodes had begun", rdzv.ErrTimeout, agents, name, j.opts.Timeout, want))
	defer cancel()
	round, began := j.round, time.Now()
	if err := j.swarm.send(o); err != nil {
		return err
	}
	full := o.Verb == verbJoin && s.Nodes == j.opts.Max // those who come are spares
	for !full && (s.Round == round || s.Nodes != want) {
		if err := j.hear(ctx); err != nil {
			return err
		}
		if s.Stopped == 0 && j.ledger.stops(round) >= s.Nodes-1 && o.Verb == verbFail {
			s.Stopped = time.Since(began).Seconds()
		}
		if latest, ok := j.ledger.latest(); ok && latest > s.Round {
			s.Round, s.Nodes = latest, len(j.ledger.members(latest))
		}
	}
	s.Seconds = time.Since(began).Seconds()
	j.round = s.Round
	j.note(s, before)
	if check != nil {
		return check()
	}
	return nil
}

// finish lets all workers succeed and waits until all agents have heard of the job's end.
func (j *job) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, j.opts.Timeout, fmt.Errorf(
		"%w: all workers have succeeded, and %v later some agents had not heard of the job's end", rdzv.ErrTimeout, j.opts.Timeout))
	defer cancel()
	s := Step{Name: "were told of the end", Agents: j.live, Round: j.round, Nodes: len(j.ledger.members(j.round))}
	before, began := j.store.stats(), time.Now()
	if err := j.swarm.send(order{Verb: verbSucceed, Agents: j.ledger.members(j.round)}); err != nil {
		return err
	}
	for j.ledger.ends < j.live {
		if err := j.hear(ctx); err != nil {
			return err
		}
	}
	s.Seconds = time.Since(began).Seconds()
	j.note(s, before)
	return nil
}

// hear takes note of what the agents' process says next.
func (j *job) hear(ctx context.Context) error {
	n, err := j.swarm.hear(ctx)
	if err != nil {
		return err
	}
	return j.ledger.take(n)
}

// note adds a step to the result.
func (j *job) note(s Step, before coord.Stats) {
	after := j.store.stats()
	s.Received, s.Sent = after.Received.Since(before.Received), after.Sent.Since(before.Sent)
	j.result.Steps = append(j.result.Steps, s)
	if j.opts.Step != nil {
		j.opts.Step(s)
	}
}

// measure asks what it took.
func (j *job) measure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, j.opts.Timeout)
	defer cancel()
	if err := j.swarm.send(order{Verb: verbUsage}); err != nil {
		return err
	}
	for {
		n, err := j.swarm.hear(ctx)
		if err != nil {
			return err
		}
		if n.Usage != nil {
			j.result.Swarm = *n.Usage
			j.result.Store, err = usage()
			return err
		}
	}
}

func sequence(from, to int) []int {
	out := make([]int, 0, to-from)
	for n := from; n < to; n++ {
		out = append(out, n)
	}
	return out
}
