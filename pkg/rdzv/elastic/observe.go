package elastic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// Snapshot is what somebody sees who looks at a run without taking part in it.
type Snapshot struct {
	Job     *Job          // nil before the first leader, and where there is no such run
	Record  *Record       // of the last round; nil before the first
	Outcome *rdzv.Outcome // nil while the job has not ended
	Agents  []AgentStatus // those of the round in rank order, then the others by their host
}

// AgentStatus is an agent.
type AgentStatus struct {
	Rank   int    // in the round; -1 for one that is not in it
	Host   string // empty where only the round tells of it
	Nproc  int
	Lost   bool // its session has ended, though the round has it
	Note   string
	Status []byte // what Options.Status of the agent returned last; nil for nothing yet
}

// Complete reports whether every agent that is there has said what it is doing.
func (v Snapshot) Complete() bool {
	return len(v.Agents) > 0 && !slices.ContainsFunc(v.Agents, func(a AgentStatus) bool { return !a.Lost && a.Status == nil })
}

// OpenObserver opens a session for Look. Of the access, what leads to the store counts.
func (a *C10d) OpenObserver(ctx context.Context, ttl time.Duration) (coord.Store, error) {
	endpoint, err := Resolve(ctx, a.Host, a.Ports[0])
	if err != nil {
		return nil, err
	}
	var tried []error
	for _, endpoint.Port = range a.Ports {
		// Without a run id the store counts nobody as an agent of the run; but then another run's store lets the visitor in, too.
		as := &C10d{Secret: a.Secret, TTL: ttl}
		if err := a.recognize(ctx, endpoint); err != nil {
			tried = append(tried, err)
			continue
		}
		store, errs, _ := as.dial(ctx, endpoint)
		if store != nil {
			return store, nil
		}
		tried = append(tried, errs...)
	}
	return nil, &unreachableError{endpoint: endpoint, ports: a.Ports, tried: tried}
}

// recognize returns nil if the run's store is at a port, where it may be at several.
func (a *C10d) recognize(ctx context.Context, e Endpoint) error {
	if len(a.Ports) == 1 {
		return nil
	}
	var tried []error
	for _, addr := range e.Addrs {
		_, err := coord.Probe(ctx, coord.DialOptions{
			Addr: netip.AddrPortFrom(addr, uint16(e.Port)).String(), Version: a.Version, RunID: a.RunID, Secret: a.Secret,
		})
		if err == nil {
			return nil
		}
		tried = append(tried, err)
	}
	return errors.Join(tried...)
}

// Observe shows the run with that id to see, at first and after each change, until ctx ends, whose cause it returns, or see returns an error,
// which it returns, or the store is gone: its other errors are those of a Store. As long as it looks, the run's agents write what they are
// doing. The session is the looker's own, and of no other use meanwhile; it is kept alive, and left open.
func Observe(ctx context.Context, store coord.Store, runID string, see func(Snapshot) error) error {
	l := &observer{store: store, prefix: prefixOf(runID), keys: map[string][]byte{}}
	ctx, cancel := context.WithCancel(ctx)
	var beating sync.WaitGroup
	beating.Go(func() { l.keepAlive(ctx) })
	defer beating.Wait()
	defer cancel()
	op := coord.Op{Key: l.prefix + prefixWatcher + string(store.Session()), Value: []byte("{}"), Owned: true}
	if _, err := store.Commit(ctx, nil, []coord.Op{op}); err != nil {
		return err
	}
	return store.Watch(ctx, l.prefix, func(b coord.Batch) error {
		l.apply(b)
		return see(l.snapshot())
	})
}

// observer is one look.
type observer struct {
	store  coord.Store
	prefix string
	keys   map[string][]byte // of the run, without the prefix
	record *Record           // the last that there was: it vanishes when the job ends
}

// keepAlive keeps the session alive.
func (l *observer) keepAlive(ctx context.Context) {
	if l.store.TTL() <= 0 {
		return
	}
	ticker := time.NewTicker(l.store.TTL() / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_ = l.store.KeepAlive(ctx) // the watch tells when the session is lost
		case <-ctx.Done():
			return
		}
	}
}

func (l *observer) apply(b coord.Batch) {
	if b.Resync {
		clear(l.keys)
	}
	for _, e := range b.Events {
		key := strings.TrimPrefix(e.Key, l.prefix)
		if e.Deleted {
			delete(l.keys, key)
		} else {
			l.keys[key] = e.Value
		}
	}
}

// readKey reads a key into a new T; nil where it is not there, or cannot be read.
func readKey[T any](l *observer, key string) *T {
	value, ok := l.keys[key]
	if !ok {
		return nil
	}
	t := new(T)
	if json.Unmarshal(value, t) != nil {
		return nil
	}
	return t
}

// snapshot puts together what the keys say.
func (l *observer) snapshot() Snapshot {
	for key := range l.keys {
		if strings.HasPrefix(key, prefixRound) {
			if r := new(Record); decodeRecord(l.keys[key], r) == nil && (l.record == nil || r.Round > l.record.Round) {
				l.record = r
			}
		}
	}
	v := Snapshot{Job: readKey[Job](l, keyJob), Record: l.record, Outcome: readKey[rdzv.Outcome](l, keyResult)}
	placed := map[coord.SessionID]bool{}
	if v.Record != nil {
		for rank, m := range v.Record.Members {
			placed[m.ID] = true
			seen := l.agent(m.ID)
			seen.Rank, seen.Nproc = rank, m.Nproc
			v.Agents = append(v.Agents, seen)
		}
	}
	var others []AgentStatus
	for key := range l.keys {
		id, ok := strings.CutPrefix(key, prefixAgent)
		if ok && !placed[coord.SessionID(id)] {
			others = append(others, l.agent(coord.SessionID(id)))
		}
	}
	slices.SortFunc(others, func(a, b AgentStatus) int {
		return cmp.Or(compareNatural(a.Host, b.Host), cmp.Compare(a.Nproc, b.Nproc))
	})
	v.Agents = append(v.Agents, others...)
	return v
}

// agent is what the keys say of one agent, its rank apart.
func (l *observer) agent(id coord.SessionID) AgentStatus {
	seen := AgentStatus{Rank: -1, Status: l.keys[prefixStatus+string(id)]}
	r := readKey[Report](l, prefixAgent+string(id))
	if r == nil {
		seen.Lost = true
		return seen
	}
	seen.Host, seen.Nproc = r.Node.Host, r.Node.Nproc
	if a := readKey[Answer](l, prefixAnswer+string(id)); a != nil && a.Kind != Run && a.Kind != End {
		seen.Note = a.Note
	}
	if r.Leaving {
		seen.Note = "is leaving"
	}
	return seen
}

// Empty reports whether the store has nothing of the run.
func (v Snapshot) Empty() bool {
	return v.Job == nil && v.Record == nil && v.Outcome == nil && len(v.Agents) == 0
}
