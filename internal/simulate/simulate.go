// Package simulate runs a rendezvous of many nodes on one machine. The real store and leader are in this process; a
// second process holds any number of real rendezvous handlers, each with its own connection. Only the workers are
// simulated.
//
// A simulation injects faults step by step, checks that every round has dense and unique ranks, and measures the time,
// messages, CPU and memory of each step. It does not measure a network: everything runs over the loopback interface.
//
// A process calls Run or Agents once at a time.
package simulate

import (
	"context"
	crypto "crypto/rand"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Options describe a simulation. Counts are at least 0, and leave the job at least Min nodes.
type Options struct {
	// Agents is how many agents start the job; at least 1.
	Agents int
	// Min and Max bound the nodes of a round; agents beyond Max are spares.
	Min, Max int
	// Rounds is how many times the faults below happen, in this order.
	Rounds int
	// FailAfter is how long after the start of its round a worker fails; nil: none fails.
	FailAfter *time.Duration
	// Kill agents vanish: their connections close without notice. Leave agents announce that they leave. Cut agents
	// fall silent while their connections stay open. Join agents join late.
	Kill, Leave, Cut, Join int
	// Voters is how many agents keep the store together: 3 or 5, or 1 for a store without agents. With 3 or 5 the first
	// agent is in this process, and no fault affects it.
	Voters int
	// KeepAlive is the interval of an agent's keep-alives; an agent that misses three is lost.
	KeepAlive time.Duration
	// Timeout bounds each step.
	Timeout time.Duration
	// Seed chooses the agents that a fault hits, and how many workers each agent has.
	Seed uint64
	// Step is called after each step.
	Step   func(Step)
	Logger zerolog.Logger
}

// Step is one event in the job, and the cost until every node was in a round again.
type Step struct {
	Name string `json:"name"`
	// Agents is how many agents it happened to.
	Agents int `json:"agents"`
	// Round and Nodes describe the round at the end of the step.
	Round int `json:"round"`
	Nodes int `json:"nodes"`
	// Stopped is when the last node had stopped its workers, Seconds when the last node had its new rank. Both count
	// from the beginning of the step, and include connecting.
	Stopped float64 `json:"stopped_seconds,omitempty"`
	Seconds float64 `json:"seconds"`
	// Received and Sent are the store's traffic during the step.
	Received coord.Traffic `json:"received"`
	Sent     coord.Traffic `json:"sent"`
}

// Result is the result of a simulation.
type Result struct {
	Steps []Step `json:"steps"`
	// Store is the usage of this process, with store and leader; Swarm is that of the agents' process.
	Store Usage `json:"store"`
	Swarm Usage `json:"swarm"`
}

// job is a running simulation.
type job struct {
	opts    Options
	store   *store
	swarm   *process
	checker *checker
	random  *rand.Rand
	live    int // agents in the job, spares included
	joined  int // agents started so far
	round   int // the last complete round
	result  Result
}

// Run runs a simulation, with command as the command line of the agents' process. When it returns, everything it
// started has ended. Its errors say which expectation failed. If ctx ends, Run returns its cause.
func Run(ctx context.Context, o Options, command []string) (result Result, err error) {
	most, err := maxAgents()
	if err != nil {
		return result, err
	}
	if n := o.Agents + o.Rounds*o.Join; n > most {
		return result, &TooManyAgentsError{Agents: n, Max: most}
	}
	j := &job{opts: o, checker: newChecker(), random: rand.New(rand.NewPCG(o.Seed, 0)), round: -1}
	defer func() {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	c := &config{
		RunID: "simulate-" + crypto.Text(), Voters: o.Voters, Job: elasticJob(o), KeepAlive: o.KeepAlive, Seed: o.Seed,
	}
	if j.store, err = openStore(ctx, c, o.Logger); err != nil {
		return result, err
	}
	defer j.store.close(ctx)
	if j.swarm, err = startProcess(ctx, command); err != nil {
		return result, err
	}
	defer j.swarm.end()
	if o.Voters > 1 {
		j.store.host = newAgent(c, j.store.access, 0, 1, j.swarm.add, o.Logger)
	}
	if err := j.swarm.send(order{Config: c}); err != nil {
		return result, err
	}
	err = j.run(ctx)
	if err == nil {
		err = j.measure(ctx)
	}
	return j.result, err
}

// event is something that happens to agents of the job.
type event struct {
	name   string
	verb   verb
	agents int
}

// run runs the steps.
func (j *job) run(ctx context.Context) error {
	o := j.opts
	events := []event{{"joined and ranked", verbJoin, o.Agents}}
	for range o.Rounds {
		if o.FailAfter != nil {
			events = append(events, event{"had a worker fail", verbFail, 1})
		}
		events = append(events, event{"vanished", verbKill, o.Kill}, event{"left", verbLeave, o.Leave},
			event{"fell silent", verbCut, o.Cut}, event{"came late", verbJoin, o.Join})
	}
	for _, e := range events {
		if e.agents == 0 {
			continue
		}
		if err := j.step(ctx, e); err != nil {
			return err
		}
	}
	return j.finish(ctx)
}

// prepare returns the order for a step, to new agents or to nodes of the round.
func (j *job) prepare(v verb, s *Step) order {
	switch v {
	case verbJoin:
		from := j.joined
		j.joined += s.Agents
		j.live += s.Agents
		return order{Verb: v, Agents: sequence(from, j.joined)}
	case verbFail:
		return order{Verb: v, Agents: j.victims(s)}
	}
	victims := j.victims(s)
	j.live -= s.Agents
	return order{Verb: v, Agents: victims}
}

// order sends an order to the agents.
func (j *job) order(ctx context.Context, o order) error {
	if at := slices.Index(o.Agents, 0); at >= 0 && j.store.host != nil {
		o.Agents = slices.Delete(slices.Clone(o.Agents), at, at+1)
		j.store.carryOut(ctx, o.Verb)
	}
	return j.swarm.send(o)
}

// victims chooses as many nodes of the round as the step asks for, or all of them.
func (j *job) victims(s *Step) []int {
	members := slices.DeleteFunc(j.checker.members(j.round), func(n int) bool { return n == 0 && j.store.host != nil })
	s.Agents = min(s.Agents, len(members))
	j.random.Shuffle(len(members), func(a, b int) { members[a], members[b] = members[b], members[a] })
	return members[:s.Agents]
}

// step makes an event happen and waits until every agent that can be in the next round is in it. Before a worker fails,
// it waits for Options.FailAfter. Agents that were cut off must have stopped their workers by then.
func (j *job) step(ctx context.Context, e event) error {
	if e.verb == verbFail {
		select {
		case <-time.After(*j.opts.FailAfter):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	s := Step{Name: e.name, Agents: e.agents, Round: j.round, Nodes: len(j.checker.members(j.round))}
	before := j.store.access.Stats()
	o := j.prepare(e.verb, &s)
	want := min(j.live, j.opts.Max)
	ctx, cancel := context.WithTimeoutCause(ctx, j.opts.Timeout, fmt.Errorf(
		"%w: %d agents %s, and %v later no round of %d nodes had begun", rdzv.ErrTimeout, e.agents, e.name, j.opts.Timeout,
		want))
	defer cancel()
	round, began := j.round, time.Now()
	if err := j.order(ctx, o); err != nil {
		return err
	}
	full := e.verb == verbJoin && s.Nodes == j.opts.Max // the new agents are spares
	for !full && (s.Round == round || s.Nodes != want) {
		if err := j.receive(ctx); err != nil {
			return err
		}
		if s.Stopped == 0 && j.checker.stops(round) >= s.Nodes-1 && e.verb == verbFail {
			s.Stopped = time.Since(began).Seconds()
		}
		if latest := j.checker.complete; latest > s.Round {
			s.Round, s.Nodes = latest, len(j.checker.members(latest))
		}
	}
	s.Seconds = time.Since(began).Seconds()
	j.round = s.Round
	j.note(s, before)
	if e.verb != verbCut {
		return nil
	}
	// Agents that are cut off must stop their workers by themselves before the other agents start a new round.
	for _, n := range o.Agents {
		if !j.checker.hasStopped(n, round) {
			return fmt.Errorf("agent %d was cut off, and its workers of round %d still ran in round %d", n, round, s.Round)
		}
	}
	return nil
}

// finish lets all workers succeed and waits until every agent knows that the job has ended.
func (j *job) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, j.opts.Timeout, fmt.Errorf(
		"%w: all workers succeeded, and %v later some agents did not know that the job had ended", rdzv.ErrTimeout,
		j.opts.Timeout))
	defer cancel()
	s := Step{Name: "were told of the end", Agents: j.live, Round: j.round, Nodes: len(j.checker.members(j.round))}
	before, began := j.store.access.Stats(), time.Now()
	if err := j.order(ctx, order{Verb: verbSucceed, Agents: j.checker.members(j.round)}); err != nil {
		return err
	}
	for j.checker.ends < j.live {
		if err := j.receive(ctx); err != nil {
			return err
		}
	}
	s.Seconds = time.Since(began).Seconds()
	j.note(s, before)
	return nil
}

// receive passes the next update of the agents' process to the checker.
func (j *job) receive(ctx context.Context) error {
	n, err := j.swarm.receive(ctx)
	if err != nil {
		return err
	}
	return j.checker.take(n)
}

// note adds a step to the result, with the store's traffic since before.
func (j *job) note(s Step, before coord.Stats) {
	after := j.store.access.Stats()
	s.Received, s.Sent = after.Received.Since(before.Received), after.Sent.Since(before.Sent)
	j.result.Steps = append(j.result.Steps, s)
	if j.opts.Step != nil {
		j.opts.Step(s)
	}
}

// measure adds the resource usage of both processes to the result.
func (j *job) measure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, j.opts.Timeout)
	defer cancel()
	if err := j.swarm.send(order{Verb: verbUsage}); err != nil {
		return err
	}
	for {
		n, err := j.swarm.receive(ctx)
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
