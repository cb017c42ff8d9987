package rdzv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Creator creates the handlers of one backend. A creator is a comparable value, such as a struct with comparable
// fields, so that a registry can distinguish a repeated registration from a conflicting one.
type Creator interface {
	// Create returns a handler for p.
	Create(ctx context.Context, p Parameters) (Handler, error)
}

// Registry finds backends by name, like torch's RendezvousHandlerRegistry. The zero value is empty and ready to use.
// Register must not be called concurrently with other methods.
type Registry struct {
	creators map[string]Creator
}

// Register adds a backend. Registering the same creator again has no effect. Register refuses another creator under a
// registered name, an empty name, and a creator that is not comparable.
func (r *Registry) Register(backend string, c Creator) error {
	if backend == "" {
		return errors.New("register rendezvous backend: the name is empty")
	}
	if c == nil || !reflect.ValueOf(c).Comparable() {
		return fmt.Errorf("register rendezvous backend %q: creator %T is not a comparable value", backend, c)
	}
	if old, ok := r.creators[backend]; ok && old != c {
		return fmt.Errorf("register rendezvous backend %q with %T: already registered with %T", backend, c, old)
	}
	if r.creators == nil {
		r.creators = make(map[string]Creator)
	}
	r.creators[backend] = c
	return nil
}

// Backends returns the registered names, sorted.
func (r *Registry) Backends() []string {
	return slices.Sorted(maps.Keys(r.creators))
}

// Create creates a handler of the backend that p names. If the handler reports another backend, Create shuts it down
// and returns an error.
func (r *Registry) Create(ctx context.Context, p Parameters) (Handler, error) {
	c, ok := r.creators[p.Backend]
	if !ok {
		return nil, &UnknownBackendError{Backend: p.Backend, Known: r.Backends()}
	}
	h, err := c.Create(ctx, p)
	if err != nil {
		return nil, err
	}
	if got := h.Backend(); got != p.Backend {
		return nil, errors.Join(
			fmt.Errorf("create rendezvous backend %q: the handler reports backend %q", p.Backend, got),
			h.Shutdown(ctx))
	}
	return h, nil
}

// UnknownBackendError says that no backend is registered under a name.
type UnknownBackendError struct {
	Backend string
	Known   []string
}

func (e *UnknownBackendError) Error() string {
	return fmt.Sprintf("rendezvous backend %q is not registered; known: %s", e.Backend, strings.Join(e.Known, ", "))
}
