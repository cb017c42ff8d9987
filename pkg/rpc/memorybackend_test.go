package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rpc/device"
)

// memoryBackend is a backend without a network: its members pass the messages of calls to each other.
type memoryBackend struct {
	limit int // largest payload in bytes

	mu      sync.Mutex
	members map[string]*memoryAgent
	full    chan struct{} // closed when all members have joined
	initErr error         // result of each Init
}

type memoryOptions struct{ Common }

func (o memoryOptions) Base() Common { return o.Common }

func newMemoryBackend() *memoryBackend {
	return &memoryBackend{limit: 1 << 20, members: map[string]*memoryAgent{}, full: make(chan struct{})}
}

func (m *memoryBackend) registry(t testing.TB) *Registry {
	t.Helper()
	r := &Registry{}
	if err := r.Register("MEMORY", Backend{
		NewOptions: func(c Common) (BackendOptions, error) { return memoryOptions{c}, nil },
		Init:       m.init,
	}); err != nil {
		t.Fatal(err)
	}
	return r
}

// init waits for all members, like a static group.
func (m *memoryBackend) init(ctx context.Context, args InitArgs) (Agent, error) {
	if m.initErr != nil {
		return nil, m.initErr
	}
	a := &memoryAgent{
		net: m, self: WorkerInfo{Name: args.Name, ID: args.Rank}, handle: args.Handle, incarnation: uint64(args.Rank) + 1000,
		done: make(chan struct{}),
	}
	m.mu.Lock()
	m.members[args.Name] = a
	if len(m.members) == args.WorldSize {
		close(m.full)
	}
	m.mu.Unlock()
	select {
	case <-m.full:
		return a, nil
	case <-ctx.Done():
		return nil, kvstore.ContextError(ctx)
	}
}

// withoutValues is a context without the values of its parent.
type withoutValues struct{ context.Context } //nolint:containedctx // wraps a context

func (withoutValues) Value(any) any { return nil }

// memoryAgent is the Agent of memoryBackend.
type memoryAgent struct {
	net         *memoryBackend
	self        WorkerInfo
	handle      Handler
	incarnation uint64
	done        chan struct{}

	mu    sync.Mutex
	ended bool
	work  sync.WaitGroup // outgoing calls and running handlers
}

func (a *memoryAgent) Self() WorkerInfo      { return a.self }
func (a *memoryAgent) Done() <-chan struct{} { return a.done }

func (a *memoryAgent) View() View {
	a.net.mu.Lock()
	defer a.net.mu.Unlock()
	v := View{Version: int64(len(a.net.members))}
	for _, other := range a.net.members {
		v.Workers = append(v.Workers, other.self)
	}
	slices.SortFunc(v.Workers, func(a, b WorkerInfo) int { return a.ID - b.ID })
	return v
}

func (a *memoryAgent) Devices() (own []device.Device, maps, reverse map[string]device.Map) {
	return []device.Device{device.CUDA(0)},
		map[string]device.Map{"worker1": {device.CUDA(0): device.CUDA(1)}},
		map[string]device.Map{"worker2": {device.CUDA(0): device.CUDA(3)}}
}

// begin counts a call as work. It returns false if the agent has ended.
func (a *memoryAgent) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ended {
		a.work.Add(1)
	}
	return !a.ended
}

func (a *memoryAgent) Invoke(ctx context.Context, to, function string, payload []byte) ([]byte, error) {
	if !a.begin() {
		return nil, ErrShutdown
	}
	defer a.work.Done()
	a.net.mu.Lock()
	peer := a.net.members[to]
	a.net.mu.Unlock()
	if peer == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknownWorker, to)
	}
	if len(payload) > a.net.limit {
		return nil, &TooLargeError{What: directionRequest, Size: int64(len(payload)), Limit: int64(a.net.limit)}
	}
	message := bytes.Join(
		request{target: peer.incarnation, from: a.self, function: function, payload: payload}.encode(),
		nil,
	)
	answers := make(chan []byte, 1)
	remote := withoutValues{ctx} // only the deadline and the end of the caller's context cross the network
	if !peer.begin() {
		return nil, fmt.Errorf("%w: refused", ErrConnection)
	}
	go func() { //nolint:contextcheck // see above
		defer peer.work.Done()
		answers <- peer.serve(remote, message)
	}()
	select {
	case answer := <-answers:
		return decodeAnswer(answer)
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-a.done:
		return nil, ErrShutdown
	}
}

func (a *memoryAgent) serve(ctx context.Context, message []byte) []byte {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-a.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	r, err := decodeRequest(message)
	var answer []byte
	switch {
	case err != nil:
	case r.target != a.incarnation:
		err = ErrReplaced
	default:
		answer, err = a.handle(ctx, r.from, r.function, r.payload)
	}
	if len(answer) > a.net.limit {
		err = &TooLargeError{What: directionAnswer, Size: int64(len(answer)), Limit: int64(a.net.limit)}
	}
	return bytes.Join(encodeAnswer(answer, err), nil)
}

func (a *memoryAgent) Shutdown(ctx context.Context, graceful bool) error {
	idle := make(chan struct{})
	if graceful {
		go func() {
			defer close(idle)
			a.work.Wait()
		}()
		select {
		case <-idle:
		case <-ctx.Done():
			return fmt.Errorf("calls are under way: %w", kvstore.ContextError(ctx))
		}
	}
	a.mu.Lock()
	if !a.ended {
		a.ended = true
		close(a.done)
	}
	a.mu.Unlock()
	a.work.Wait()
	return nil
}

// newGroups forms a group with one worker per table: worker0, worker1 and so on. They are closed at the end of the
// test.
func newGroups(t testing.TB, m *memoryBackend, tables ...*Functions) []*Group {
	t.Helper()
	registry := m.registry(t)
	groups := make([]*Group, len(tables))
	var wg sync.WaitGroup
	for rank, table := range tables {
		wg.Go(func() {
			g, err := Init(t.Context(), Config{
				Name: fmt.Sprint("worker", rank), Store: kvstore.NewHashStore(), Rank: rank, WorldSize: len(tables),
				Registry: registry, Backend: "MEMORY", Functions: []*Functions{table},
			})
			if err != nil {
				t.Error(err)
				return
			}
			groups[rank] = g
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		for _, g := range groups {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return groups
}

// handle registers a function.
func handle[Req, Resp any](
	t testing.TB,
	fns *Functions,
	f Func[Req, Resp],
	do func(context.Context, Req) (Resp, error),
) {
	t.Helper()
	if err := f.Handle(fns, do); err != nil {
		t.Fatal(err)
	}
}

var errTest = errors.New("the test's own")
