package simulate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// agent is a real rendezvous handler with simulated workers, which start and exit at once.
type agent struct {
	number int
	nproc  int
	access *elastic.C10d
	h      *elastic.Handler
	link   *faultLink  // nil if the simulation never ends it
	orders chan verb   // what happens to its workers
	gone   atomic.Bool // the simulation ends the agent, so its end is not reported
	cancel context.CancelCauseFunc
	report func(update)
}

// leaveTime is how long the workers of a leaving agent take to exit.
const leaveTime = 200 * time.Millisecond

// newAgent returns an agent with that access to the store. The caller may set its link.
func newAgent(c *config, access *elastic.C10d, number, nproc int, report func(update), log zerolog.Logger) *agent {
	a := &agent{number: number, nproc: nproc, access: access, orders: make(chan verb, 4), report: report}
	name := "node" + strconv.Itoa(number)
	identity := fmt.Sprintf("machine:%032x/0", number) // as long as a real one
	a.h = elastic.New(elastic.Options{
		Backend: rdzv.BackendC10d, RunID: c.RunID, Job: c.Job, Node: rounds.Node{
			Host: name, Identity: identity, Hint: -1,
			Launch: rounds.Launch{ID: c.RunID},
		},
		Access: access,
		// No worker connects, so nothing has to listen.
		Stores:    elastic.WorkerStores{Addr: loopback, Ports: machine.Ports{Low: 1, High: 1}, WorkersHost: true},
		KeepAlive: c.KeepAlive, Timeout: c.KeepAlive, Logger: log,
	})
	return a
}

// errGone is the cause of the canceled context of an agent that the simulation ends.
var errGone = errors.New("the simulation ended this agent")

// live takes part in the rendezvous until the job or the agent ends.
func (a *agent) live(ctx context.Context) {
	self := rdzv.Member{Role: "default", LocalWorldSize: a.nproc}
	for again := true; again; {
		r, err := a.h.NextRendezvous(ctx, self)
		if err != nil {
			a.ended(err)
			break
		}
		a.report(update{Entries: []entry{{
			Agent: a.number, Round: r.Number, Rank: r.Rank, Nodes: r.WorldSize, Nproc: a.nproc,
			Base: r.Assignment.GlobalBase, World: r.Assignment.GlobalWorldSize, Restarts: r.Restarts,
		}}})
		self.Failure, again = a.work(ctx, r)
	}
}

// work simulates the workers of a round. It returns their failure, and whether the agent goes on to the next round.
func (a *agent) work(ctx context.Context, r *rdzv.Round) (f *rdzv.Failure, again bool) {
	for {
		select {
		case s := <-a.h.Stops():
			if s.Round == r.Number {
				a.reportStop(r.Number)
				return nil, true
			}
		case v := <-a.orders:
			switch v {
			case verbFail:
				f = &rdzv.Failure{Failure: failure.Failure{
					Host:       "node" + strconv.Itoa(a.number),
					GlobalRank: r.Assignment.GlobalBase, ExitCode: 1,
				}}
				a.h.Fail(*f)
				return f, true
			case verbLeave:
				a.h.Leave()
				select { // its workers take a moment to exit
				case <-a.h.Stops():
				case <-time.After(leaveTime):
				}
				return nil, false
			default: // success
				s, err := a.h.Succeed(ctx, rdzv.NoTimeout)
				if s != nil {
					a.reportStop(r.Number)
					return nil, true
				}
				a.ended(err)
				return nil, false
			}
		case <-ctx.Done():
			return nil, false
		}
	}
}

func (a *agent) reportStop(round int) {
	a.report(update{Stops: []stop{{Agent: a.number, Round: round}}})
}

// ended reports that the agent has left the rendezvous.
func (a *agent) ended(err error) {
	if a.gone.Load() {
		return
	}
	e := end{Agent: a.number}
	var job *rdzv.EndedError
	succeeded := err == nil || errors.As(err, &job) && job.Outcome.Ending == rdzv.EndSucceeded
	if !succeeded {
		e.Err = err.Error()
	}
	a.report(update{Ends: []end{e}})
}
