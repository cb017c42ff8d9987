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

// Creator makes handlers of one backend. Creators are comparable values, so
// that a registry can tell a repeated registration from a conflicting one;
// a struct without fields, or with comparable ones, will do.
type Creator interface {
	Create(ctx context.Context, p Parameters) (Handler, error)
}

// Registry finds backends by name (seed 000, RendezvousHandlerRegistry). The zero
// value is empty and ready. It is filled before it is used: Register is not safe
// beside other calls.
type Registry struct {
	creators map[string]Creator
}

// Register adds a backend. The same creator may be registered again; another
// one under a taken name is refused, and so are an empty name and a creator that
// cannot be compared.
func (r *Registry) Register(backend string, c Creator) error {
	if backend == "" {
		return errors.New("register rendezvous backend: the name is empty")
	}
	if c == nil || !reflect.ValueOf(c).Comparable() {
		return fmt.Errorf("register rendezvous backend %q: creator %T is not a comparable value", backend, c)
	}
	if old, ok := r.creators[backend]; ok && old != c {
		return fmt.Errorf("register rendezvous backend %q with %T: it is registered already with %T", backend, c, old)
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

// Create makes a handler of the backend that p names. A handler that reports
// another backend name than the one asked for is shut down and refused.
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
			fmt.Errorf("create rendezvous backend %q: the handler says it is %q", p.Backend, got),
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
