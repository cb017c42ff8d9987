package elastic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/machine"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
)

// Snapshot is the state of a run as an observer sees it.
type Snapshot struct {
	Job     *rounds.Job    // nil before the first leader, and if there is no such run
	Record  *rounds.Record // of the last round; nil before the first
	Outcome *rdzv.Outcome  // nil until the job has ended
	Agents  []AgentStatus  // the round's agents in rank order, then the others by host
	Store   *StoreState    // nil if the agents do not keep the store together
}

// StoreState says who keeps the store.
type StoreState struct {
	// Voters are the addresses of the agents that keep it, of which Leader serves it.
	Voters []string
	Leader string
	// SurvivesLoss says that any one node may be lost.
	SurvivesLoss bool
	// Heirs are those of the agents that can take over from the only voter if its agent is killed.
	Heirs []string
	// Problem says why the loss of the leader's node may end the job. If that node keeps the store alone, Problem is a
	// text that follows the node's name; else it names the voters that do not reach each other. It is "" until the problem
	// has lasted for a while.
	Problem string
}

// AgentStatus is the state of one agent.
type AgentStatus struct {
	Rank  int    // in the round; -1 if the agent is not in it
	Host  string // empty if it is not known
	Nproc int
	Lost  bool // the agent is in the round, but its session has ended
	// Departed says that the workers of the node have finished, and that its agent has gone: it has left the exit barrier
	// before the others, or its session has ended.
	Departed bool
	Note     string
	Status   []byte // what the agent's Options.Status returned last; nil before
	Stacks   []byte // what the agent's Options.Stacks has returned for this observer; nil before, and if it does not ask
}

// Complete reports whether there is an agent, and every agent that is neither lost nor departed has published its
// status.
func (s Snapshot) Complete() bool {
	missing := func(a AgentStatus) bool { return !a.Lost && !a.Departed && a.Status == nil }
	return len(s.Agents) > 0 && !slices.ContainsFunc(s.Agents, missing)
}

// HasStacks reports whether there is an agent, and every agent that is neither lost nor departed has replied to
// [ObserveStacks].
func (s Snapshot) HasStacks() bool {
	missing := func(a AgentStatus) bool { return !a.Lost && !a.Departed && a.Stacks == nil }
	return len(s.Agents) > 0 && !slices.ContainsFunc(s.Agents, missing)
}

// OpenObserver opens a session for [Observe], or for [Close] as [coord.RoleCloser]. It uses the endpoint, the run id,
// the secret and the certificates of a.
func (a *C10d) OpenObserver(ctx context.Context, role coord.Role, ttl time.Duration) (coord.Store, error) {
	as := &C10d{
		Socket: a.Socket, RunID: a.RunID, Secret: a.Secret, Certificates: a.Certificates, ServerNames: a.ServerNames,
		TTL: ttl, role: role,
	}
	as.Users = &StoreUsers{Anybody: true} // root may look at any user's job
	if a.Socket != "" {
		return as.joinLocal(ctx)
	}
	store, tried := firstOf(ctx, 1+len(a.More), func(ctx context.Context, i int) (coord.Store, error) {
		return a.observeAt(ctx, as, a.hostOf(i))
	})
	if store != nil {
		return store, nil
	}
	err := tried[0]
	if len(tried) > 1 {
		err = &endpointsError{tried}
	}
	if errors.Is(err, coord.ErrUnavailable) {
		err = fmt.Errorf("%w; if the job goes on elsewhere, ask on one of its nodes, without --rdzv-endpoint", err)
	}
	return nil, err
}

// observeAt opens a session of the observer as at an endpoint.
func (a *C10d) observeAt(ctx context.Context, as *C10d, at StoreHost) (coord.Store, error) {
	endpoint, err := machine.Resolve(ctx, at.Host, at.Ports[0])
	if err != nil {
		return nil, err
	}
	var tried []error
	for _, endpoint.Port = range at.Ports {
		// A store accepts observers of any run, so checkRun asks for the run first.
		if err := a.checkRun(ctx, endpoint, len(at.Ports)); err != nil {
			tried = append(tried, err)
			continue
		}
		store, errs, _ := as.dial(ctx, endpoint)
		if store != nil {
			return store, nil
		}
		tried = append(tried, errs...)
	}
	for _, err := range tried {
		refused, ok := errors.AsType[*coord.RefusedError](err)
		if ok && refused.Reason == coord.ReasonSecret && len(a.Secret) == 0 { // most likely the run's store
			return nil, err
		}
	}
	return nil, &unreachableError{endpoint: endpoint, ports: at.Ports, tried: tried}
}

// checkRun returns nil if the run's store is at the endpoint. It does not ask if the endpoint has only one port.
func (a *C10d) checkRun(ctx context.Context, e machine.Endpoint, ports int) error {
	if ports == 1 {
		return nil
	}
	var tried []error
	for _, addr := range e.Addrs {
		_, err := coord.Probe(ctx, a.dialOptions(netip.AddrPortFrom(addr, uint16(e.Port)).String(), e.Host))
		if err == nil {
			return nil
		}
		tried = append(tried, err)
	}
	return errors.Join(tried...)
}

// Observe calls see with a snapshot of the run, at first and after each change. It returns see's error, or the cause of
// ctx when ctx ends, or the error of the store, which is [coord.ErrUnavailable] if it has not answered for the
// session's TTL. Meanwhile the run's agents publish their status. Observe keeps the session of store alive, also when
// other agents keep the store from now on, and does not close it. The session must not be used otherwise.
func Observe(ctx context.Context, store coord.Store, runID string, see func(Snapshot) error) error {
	return observe(ctx, store, runID, wish{}, see)
}

// ObserveStacks is Observe for the stacks of the workers: each agent replies once, instead of publishing its status.
// allThreads asks for all threads; other observers may have asked for them too, so the agents may reply with more.
func ObserveStacks(
	ctx context.Context, store coord.Store, runID string, allThreads bool, see func(Snapshot) error,
) error {
	return observe(ctx, store, runID, wish{Stacks: true, StacksRequest: rounds.StacksRequest{AllThreads: allThreads}}, see)
}

func observe(ctx context.Context, store coord.Store, runID string, w wish, see func(Snapshot) error) error {
	o := newObserver(store, rounds.PrefixOf(runID))
	o.follows = true
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	running.Go(func() { cancel(o.keepAlive(ctx)) })
	defer running.Wait()
	defer cancel(nil)
	return o.run(ctx, w, see)
}

// run asks the agents for what w says and calls see with each snapshot.
func (o *observer) run(ctx context.Context, w wish, see func(Snapshot) error) error {
	value, _ := json.Marshal(w) // cannot fail
	op := coord.Op{Key: o.prefix + rounds.PrefixWatcher + string(o.store.Session()), Value: value, Owned: true}
	if _, err := o.store.Commit(ctx, nil, []coord.Op{op}); err != nil {
		return err
	}
	return o.store.Watch(ctx, o.prefix, func(b coord.Batch) error {
		o.apply(b)
		return see(o.snapshot())
	})
}

// observer is one call of Observe, or an agent that looks at the job's workers.
type observer struct {
	follows bool // the observer owns the session, and makes it follow the store to other addresses
	store   coord.Store
	prefix  string
	keys    map[string][]byte          // the run's keys, without the prefix
	stacks  map[coord.SessionID][]byte // the agents' replies to this observer
	record  *rounds.Record             // the last one: its key is deleted when the job ends
}

func newObserver(store coord.Store, prefix string) *observer {
	return &observer{store: store, prefix: prefix, keys: map[string][]byte{}, stacks: map[coord.SessionID][]byte{}}
}

// keepAlive keeps the session alive until ctx ends, or the session is lost, or the store does not answer.
func (o *observer) keepAlive(ctx context.Context) error {
	ttl := o.store.TTL()
	if ttl <= 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	ticker := time.NewTicker(ttl / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		silent := fmt.Errorf("%w: it has not answered for %s", coord.ErrUnavailable, seconds.Format(ttl))
		bounded, cancel := context.WithTimeoutCause(ctx, ttl*3/4, silent)
		err := o.store.KeepAlive(bounded)
		cause := context.Cause(bounded)
		cancel()
		if err != nil {
			return cmp.Or(cause, err)
		}
	}
}

// apply applies a batch of the watch to the keys.
func (o *observer) apply(b coord.Batch) {
	if b.Resync {
		clear(o.keys)
	}
	for _, e := range b.Events {
		key := strings.TrimPrefix(e.Key, o.prefix)
		if id, is := strings.CutPrefix(key, rounds.PrefixStacks); is {
			o.applyStacks(coord.SessionID(id), e)
			continue
		}
		if e.Deleted {
			delete(o.keys, key)
		} else {
			o.keys[key] = e.Value
		}
		if key == rounds.KeyStore && o.follows {
			o.followStore()
		}
	}
}

// followStore makes the session's client look for the store where it may be from now on.
func (o *observer) followStore() {
	client, ok := o.store.(*coord.Client)
	if at := readKey[rounds.StoreAddrs](o, rounds.KeyStore); ok && at != nil {
		client.SetAddrs(at.Reachable())
	}
}

// applyStacks records an agent's reply, if it is one to this observer. A reply stays when the agent deletes its key.
func (o *observer) applyStacks(id coord.SessionID, e coord.Event) {
	var reply stacksReply
	if !e.Deleted && json.Unmarshal(e.Value, &reply) == nil && slices.Contains(reply.For, o.store.Session()) {
		o.stacks[id] = reply.Stacks
	}
}

// readKey decodes the value of a key. It returns nil if there is no such key or its value cannot be decoded.
func readKey[T any](o *observer, key string) *T {
	value, ok := o.keys[key]
	if !ok {
		return nil
	}
	t := new(T)
	if json.Unmarshal(value, t) != nil {
		return nil
	}
	return t
}

// job returns the parameters of the run; nil if there are none.
func (o *observer) job() *rounds.Job {
	latest := ""
	for key := range o.keys {
		if strings.HasPrefix(key, rounds.PrefixJob) && rounds.CompareNatural(key, latest) > 0 {
			latest = key
		}
	}
	return readKey[rounds.Job](o, latest)
}

// snapshot returns the state that the keys describe.
func (o *observer) snapshot() Snapshot {
	for key := range o.keys {
		if strings.HasPrefix(key, rounds.PrefixRound) {
			r := new(rounds.Record)
			if rounds.DecodeRecord(o.keys[key], r) == nil && (o.record == nil || r.Round > o.record.Round) {
				o.record = r
			}
		}
	}
	s := Snapshot{Job: o.job(), Record: o.record, Outcome: readKey[rdzv.Outcome](o, rounds.KeyResult)}
	if at := readKey[rounds.StoreAddrs](o, rounds.KeyStore); at != nil {
		s.Store = stateOf(*at)
	}
	placed := map[coord.SessionID]bool{}
	if s.Record != nil {
		for rank, m := range s.Record.Members {
			placed[m.ID] = true
			a := o.agent(m.ID)
			a.Rank, a.Nproc, a.Host = rank, m.Nproc, cmp.Or(a.Host, m.Host)
			if a.Lost {
				o.explainAbsence(&a, s.Record)
			}
			s.Agents = append(s.Agents, a)
		}
	}
	var others []AgentStatus
	for key := range o.keys {
		id, ok := strings.CutPrefix(key, rounds.PrefixAgent)
		if ok && !placed[coord.SessionID(id)] {
			others = append(others, o.agent(coord.SessionID(id)))
		}
	}
	slices.SortFunc(others, func(a, b AgentStatus) int {
		return cmp.Or(rounds.CompareNatural(a.Host, b.Host), cmp.Compare(a.Nproc, b.Nproc))
	})
	s.Agents = append(s.Agents, others...)
	return s
}

// explainAbsence corrects the state of an agent without a session if its workers had finished.
func (o *observer) explainAbsence(a *AgentStatus, r *rounds.Record) {
	if d := readKey[rounds.DepartedMember](o, rounds.DepartedMember{Round: r.Round, Rank: a.Rank}.Key()); d != nil {
		a.Lost, a.Departed, a.Host, a.Note = false, true, d.Node.Host, "had finished and left"
		return
	}
	s := readKey[rounds.Successes](o, rounds.SuccessKey(r.Round, a.Rank))
	if s != nil && s.IsOf(r) && s.Has(a.Rank) {
		a.Lost, a.Departed, a.Note = false, true, "had finished, and its agent has ended"
	}
}

// agent returns the state of one agent, without its rank.
func (o *observer) agent(id coord.SessionID) AgentStatus {
	status := AgentStatus{Rank: -1, Status: o.keys[rounds.PrefixStatus+string(id)], Stacks: o.stacks[id]}
	r := readKey[rounds.Report](o, rounds.PrefixAgent+string(id))
	if r == nil {
		status.Lost = true
		return status
	}
	status.Host, status.Nproc = r.Node.Host, r.Node.Nproc
	a := readKey[rounds.Answer](o, rounds.PrefixAnswer+string(id))
	if a != nil && a.Kind != rounds.Run && a.Kind != rounds.End {
		status.Note = a.Note
	}
	if r.Leaving {
		status.Note = "is leaving"
	}
	return status
}

// Empty reports whether the store knows nothing of the run.
func (s Snapshot) Empty() bool {
	return s.Job == nil && s.Record == nil && s.Outcome == nil && len(s.Agents) == 0
}
