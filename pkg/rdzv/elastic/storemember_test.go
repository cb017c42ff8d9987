package elastic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// cable is an agent's way to all others. Once it is cut, nothing leads to or from the agent.
type cable struct {
	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

func (c *cable) dial(ctx context.Context, addr string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || !c.isCut {
		c.conns = append(c.conns, nc)
		return nc, err
	}
	return nil, errors.Join(errors.New("the cable is cut"), nc.Close())
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	for _, nc := range c.conns {
		if nc != nil {
			_ = nc.Close()
		}
	}
}

// keepTogether makes the agents of a test keep their store together.
func keepTogether(h *Handler) *cable {
	a, c := h.opts.Access.(*C10d), &cable{}
	a.Voters, a.MinNodes, a.Connect, a.LocalAddr = 3, h.opts.Job.Min, c.dial, "127.0.0.1"
	return c
}

// togetherJob is a job whose agents keep the store together.
type togetherJob struct {
	agents []*Handler // in rank order
	cables []*cable
}

// startTogether starts n agents that keep their store together, the first of which is at the endpoint. It returns them
// in rank order once any one may be lost.
func startTogether(t *testing.T, j rounds.Job, n int) *togetherJob {
	t.Helper()
	together := &togetherJob{}
	together.agents = startJob(t, j, n, func(_ int, h *Handler) {
		together.cables = append(together.cables, keepTogether(h))
	})
	awaitSurvival(t, together.agents[0])
	for _, h := range together.agents { // the leader knows before the agents know who the voters are
		for known(h.opts.Access.(*C10d)) < 3 {
			time.Sleep(time.Millisecond) //nolint:forbidigo // nothing signals that
		}
	}
	return together
}

// known returns at how many addresses an agent looks for the store.
func known(a *C10d) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.client.Addrs())
}

// memberOf returns an agent's part in the store.
func memberOf(h *Handler) *storeMember { return h.opts.Access.(*C10d).storeMember() }

// awaitSurvival waits until the store survives the loss of any one voter. h leads the group.
func awaitSurvival(t *testing.T, h *Handler) {
	t.Helper()
	m := memberOf(h)
	for limit := time.After(time.Minute); ; {
		m.mu.Lock()
		status, changed := m.Status, m.changed
		m.mu.Unlock()
		if status.SurvivesLoss && len(status.Voters) == 3 {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("the store would not survive a loss after a minute: %+v", status)
		}
	}
}

// crash ends an agent and its part in the store as a kill of its process would. Its session expires.
func (j *togetherJob) crash(t *testing.T, i int) {
	t.Helper()
	h := j.agents[i]
	j.cables[i].cut()
	m := memberOf(h)
	if err := errors.Join(m.listener.Close(), m.member.Close()); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	cancel := h.cancel
	h.mu.Unlock()
	cancel(errors.New("the agent was killed"))
}

func TestFounderIsLost(t *testing.T) {
	t.Parallel()
	together := startTogether(t, job(2, 4), 4)
	together.crash(t, 0)
	rest := together.agents[1:]
	for i, h := range rest {
		awaitStop(t, fmt.Sprintf("node %d", i+1), h)
	}
	waits := make([]<-chan joined, len(rest))
	for i, h := range rest {
		h.Stopped()
		waits[i] = enter(t, h, nil)
	}
	for i, w := range waits {
		if got := await(t, "next round", w); got.err != nil || got.round.WorldSize != 3 || got.round.Restarts != 0 {
			t.Fatalf("node %d: %+v", i+1, got)
		}
	}
	succeedAll(t, rest)
}

// succeedAll ends the job with success.
func succeedAll(t *testing.T, hs []*Handler) {
	t.Helper()
	ended := make(chan error, len(hs))
	for _, h := range hs {
		go func() {
			_, err := h.Succeed(t.Context(), time.Minute)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
			defer cancel()
			ended <- errors.Join(err, h.Shutdown(ctx))
		}()
	}
	for range hs {
		if err := await(t, "end", ended); err != nil {
			t.Error(err)
		}
	}
}

// The only voter can hand over to a candidate, where the agents must look for the store then.
func TestAddrsOfCandidates(t *testing.T) {
	t.Parallel()
	a := newMemberAccess(t, testenv.FreePort(t))
	client := openTogether(t, a).(*coord.Client)
	const candidate = "127.0.0.1:1"
	for voters, want := range map[int]bool{1: true, 3: false} {
		at := rounds.StoreAddrs{Addrs: []string{client.Addr(), "127.0.0.1:2", "127.0.0.1:3"}[:voters], Candidates: []string{candidate}}
		a.storeMoved(client, at)
		if got := client.Addrs(); slices.Contains(got, candidate) != want {
			t.Errorf("with %d voters the agent looks for the store at %v", voters, got)
		}
	}
}
