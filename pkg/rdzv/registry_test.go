package rdzv

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/goodput"
)

// named creates handlers that call themselves by another name.
type named struct{ says string }

func (n named) Create(context.Context, Parameters) (Handler, error) {
	return fakeHandler{n.says}, nil
}

// fakeHandler is a handler of which the registry needs only the name.
type fakeHandler struct{ backend string }

func (f fakeHandler) Backend() string { return f.backend }
func (f fakeHandler) RunID() string   { return "run" }
func (f fakeHandler) NextRendezvous(context.Context, Member) (*Round, error) {
	return nil, ErrClosed
}
func (f fakeHandler) Stops() <-chan Stop                                    { return nil }
func (f fakeHandler) Fail(Failure)                                          {}
func (f fakeHandler) Succeed(context.Context, time.Duration) (*Stop, error) { return nil, nil }
func (f fakeHandler) Leave()                                                {}
func (f fakeHandler) IsClosed(context.Context) (bool, error)                { return false, nil }
func (f fakeHandler) SetClosed(context.Context, string) error               { return nil }
func (f fakeHandler) Quiet(*Quiet)                                          {}
func (f fakeHandler) Started()                                              {}
func (f fakeHandler) Stepped(Steps)                                         {}
func (f fakeHandler) Used() (*goodput.Goodput, bool)                        { return nil, false }
func (f fakeHandler) Preempt(Preemption)                                    {}
func (f fakeHandler) Stopped()                                              {}
func (f fakeHandler) NumNodesWaiting() int                                  { return 0 }
func (f fakeHandler) Shutdown(context.Context) error                        { return nil }

// failing never creates a handler.
type failing struct{ err error }

func (f failing) Create(context.Context, Parameters) (Handler, error) { return nil, f.err }

// creatorList cannot be compared.
type creatorList []Creator

func (creatorList) Create(context.Context, Parameters) (Handler, error) { return nil, nil }

func TestRegistry(t *testing.T) {
	var r Registry
	first := named{"one"}
	for range 2 { // the same creator may be registered again
		if err := r.Register("one", first); err != nil {
			t.Fatal(err)
		}
	}
	refused := []struct {
		name, backend string
		creator       Creator
		want          string
	}{
		{"empty name", "", first, "name is empty"},
		{"taken name", "one", named{"other"}, `"one"`},
		{"no creator", "nil", nil, "not a comparable value"},
		{"creator that cannot be compared", "list", creatorList{}, "not a comparable value"},
	}
	for _, tt := range refused {
		if err := r.Register(tt.backend, tt.creator); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q in it", tt.name, err, tt.want)
		}
	}
	if err := r.Register("liar", first); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := r.Register("broken", failing{broken}); err != nil {
		t.Fatal(err)
	}
	if got, want := r.Backends(), []string{"broken", "liar", "one"}; !slices.Equal(got, want) {
		t.Errorf("Backends = %v, want %v", got, want)
	}

	params := func(backend string) Parameters { return Parameters{Backend: backend, MinNodes: 1, MaxNodes: 1} }
	h, err := r.Create(t.Context(), params("one"))
	if err != nil || h.Backend() != "one" {
		t.Fatalf("Create(one) = %v, %v", h, err)
	}
	if _, err := r.Create(t.Context(), params("liar")); err == nil || !strings.Contains(err.Error(), `"one"`) {
		t.Errorf("Create(liar) error %v does not name what the handler says", err)
	}
	if _, err := r.Create(t.Context(), params("broken")); !errors.Is(err, broken) {
		t.Errorf("Create(broken) error %v", err)
	}
	var unknown *UnknownBackendError
	if _, err := r.Create(t.Context(), params("etcd")); !errors.As(err, &unknown) || unknown.Backend != "etcd" {
		t.Errorf("Create(etcd) error %v", err)
	}
}
