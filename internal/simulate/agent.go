package simulate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic"
)

// agent is a real rendezvous handler with simulated workers, which begin and end in no time.
type agent struct {
	number int
	nproc  int
	h      *elastic.Handler
	cable  *cable
	orders chan verb   // of what happens to its workers
	gone   atomic.Bool // nobody is to hear of its end
	cancel context.CancelCauseFunc
	tell   func(news)
}

// leaveTime is how long the workers of an agent that leaves take to end.
const leaveTime = 200 * time.Millisecond

func newAgent(c *config, number, nproc int, tell func(news), log zerolog.Logger) (*agent, error) {
	host, portText, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return nil, fmt.Errorf("address of the store: %w", err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, fmt.Errorf("address of the store: %w", err)
	}
	a := &agent{number: number, nproc: nproc, cable: new(cable), orders: make(chan verb, 4), tell: tell}
	name := "node" + strconv.Itoa(number)
	identity := fmt.Sprintf("machine:%032x/0", number) // as long as those of machines are
	hosts := false
	a.h = elastic.New(elastic.Options{
		Backend: rdzv.BackendC10d, RunID: runID, Job: c.Job, Node: elastic.Node{Host: name, Identity: identity, Hint: -1, Launch: elastic.Launch{ID: runID}},
		Access: &elastic.C10d{
			RunID: runID, TTL: attempts * c.KeepAlive, Host: host, Ports: []int{port}, IsHost: &hosts, Hint: -1, Connect: a.cable.connect, Logger: log,
		},
		// Nothing listens: there are no workers that would come.
		Stores:    elastic.WorkerStores{Addr: "127.0.0.1", Ports: elastic.Ports{Low: 1, High: 1}, WorkersHost: true},
		KeepAlive: c.KeepAlive, Timeout: c.KeepAlive, Logger: log,
	})
	return a, nil
}

// errGone ends an agent.
var errGone = errors.New("it was ended")

// live takes part until the job or the agent ends.
func (a *agent) live(ctx context.Context) {
	self := rdzv.Member{Role: "default", LocalWorldSize: a.nproc}
	for again := true; again; {
		r, err := a.h.NextRendezvous(ctx, self)
		if err != nil {
			a.ended(err)
			break
		}
		a.tell(news{Entries: []entry{{
			Agent: a.number, Round: r.Number, Rank: r.Rank, Nodes: r.WorldSize, Nproc: a.nproc,
			Base: r.Assignment.GlobalBase, World: r.Assignment.GlobalWorldSize, Restarts: r.Restarts,
		}}})
		self.Failure, again = a.work(ctx, r)
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = a.h.Shutdown(bounded) // it hosts nothing
}

// work is what happens to the workers of a round. It returns their failure, and whether the agent is to enter the next round.
func (a *agent) work(ctx context.Context, r *rdzv.Round) (f *rdzv.Failure, again bool) {
	for {
		select {
		case s := <-a.h.Stops():
			if s.Round == r.Number {
				return nil, a.stop(r.Number)
			}
		case v := <-a.orders:
			switch v {
			case verbFail:
				f = &rdzv.Failure{Host: "node" + strconv.Itoa(a.number), GlobalRank: r.Assignment.GlobalBase, ExitCode: 1}
				a.h.Fail(*f)
				return f, true
			case verbLeave:
				a.h.Leave()
				select { // its workers take a moment to end
				case <-a.h.Stops():
				case <-time.After(leaveTime):
				}
				return nil, false
			default: // success
				s, err := a.h.Succeed(ctx)
				if s != nil {
					return nil, a.stop(r.Number)
				}
				a.ended(err)
				return nil, false
			}
		case <-ctx.Done():
			return nil, false
		}
	}
}

func (a *agent) stop(round int) (again bool) {
	a.tell(news{Stops: []stop{{Agent: a.number, Round: round}}})
	return true
}

// ended tells that the agent has left the rendezvous.
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
	a.tell(news{Ends: []end{e}})
}
