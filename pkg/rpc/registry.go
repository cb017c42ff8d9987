package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

const (
	// DefaultTimeout is the default limit of a call.
	DefaultTimeout = 60 * time.Second
	// DefaultInitMethod is the default URL of the store: the environment variables of the launcher.
	DefaultInitMethod = "env://"
)

// Common are the options that every backend has.
type Common struct {
	// Timeout is the limit of a call whose context has no deadline. 0 means DefaultTimeout, a negative value means no
	// limit.
	Timeout time.Duration
	// InitMethod is the URL of the store, with a scheme of [Config].Schemes. "" means DefaultInitMethod.
	InitMethod string
}

// WithDefaults returns a copy whose unset fields have the defaults.
func (c Common) WithDefaults() Common {
	c.Timeout, c.InitMethod = cmp.Or(c.Timeout, DefaultTimeout), cmp.Or(c.InitMethod, DefaultInitMethod)
	return c
}

// BackendOptions are the options of a backend, in a type of that backend. See [OptionsAs].
type BackendOptions interface {
	// Base returns the options that every backend has.
	Base() Common
}

// Handler runs a function that another worker calls. The agent passes every incoming call to it. ctx ends at the
// deadline of the call, or when no caller waits for the answer.
type Handler func(ctx context.Context, from WorkerInfo, function string, payload []byte) (answer []byte, err error)

// InitArgs are the arguments of [Backend] Init.
type InitArgs struct {
	// Store is the store that the members share. The caller closes it after the group has ended.
	Store kvstore.Store
	// Name and Rank identify this worker. A dynamic group ignores Rank.
	Name string
	Rank int
	// WorldSize is the number of members of a static group. 0 means a dynamic group.
	WorldSize int
	// Options are of the type of the backend. Nil means the result of its NewOptions for the defaults.
	Options BackendOptions
	// Handle receives all calls of other members.
	Handle Handler
	Logger zerolog.Logger
}

// Backend is an implementation of calls between workers.
type Backend struct {
	// NewOptions returns options that contain the given common options, whose defaults are set.
	NewOptions func(Common) (BackendOptions, error)
	// Check returns an error for options that Init would reject. It connects to nothing. Nil means that all options are
	// valid.
	Check func(options BackendOptions) error
	// Init makes the worker a member of its group. Store and Options of args are set.
	Init func(ctx context.Context, args InitArgs) (Agent, error)
}

// Registry finds backends by name, like BackendType in torch 2.14 torch/distributed/rpc/backend_registry.py. The zero
// value is an empty registry. Register all backends before other goroutines use the registry: Register is not safe for
// concurrent use.
type Registry struct {
	backends map[string]Backend
}

// Register adds a backend. It returns a [*RegisteredError] if the name is taken, and an error if the name is empty or a
// required function is nil.
func (r *Registry) Register(name string, b Backend) error {
	switch {
	case name == "":
		return errors.New("register RPC backend: the name is empty")
	case r.Registered(name):
		return &RegisteredError{Name: name}
	case b.NewOptions == nil:
		return fmt.Errorf("register RPC backend %q: it has no NewOptions", name)
	case b.Init == nil:
		return fmt.Errorf("register RPC backend %q: it has no Init", name)
	}
	if r.backends == nil {
		r.backends = make(map[string]Backend)
	}
	r.backends[name] = b
	return nil
}

// Registered reports whether the registry has a backend of this name.
func (r *Registry) Registered(name string) bool {
	_, ok := r.backends[name]
	return ok
}

// Backends returns the registered names, sorted.
func (r *Registry) Backends() []string {
	return slices.Sorted(maps.Keys(r.backends))
}

// String lists the backends in the format of torch, sorted: "[BackendType.GRPC, BackendType.TEST]".
func (r *Registry) String() string {
	list := r.Backends()
	for i, name := range list {
		list[i] = "BackendType." + name
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// NewOptions returns options of a backend. Unset fields of common get the defaults.
func (r *Registry) NewOptions(name string, common Common) (BackendOptions, error) {
	b, err := r.backend(name)
	if err != nil {
		return nil, err
	}
	return b.NewOptions(common.WithDefaults())
}

// Init makes this worker a member of a group of the named backend. It returns ErrStore without a store, and an
// [*OptionsTypeError] for options of another backend if the backend checks them.
func (r *Registry) Init(ctx context.Context, name string, args InitArgs) (Agent, error) {
	b, err := r.backend(name)
	if err != nil {
		return nil, err
	}
	if isNil(args.Store) {
		return nil, fmt.Errorf("init RPC backend %q for worker %q: %w", name, args.Name, ErrStore)
	}
	if args.Options == nil {
		if args.Options, err = b.NewOptions(Common{}.WithDefaults()); err != nil {
			return nil, err
		}
	}
	if err := b.check(args.Options); err != nil {
		return nil, err
	}
	return b.Init(ctx, args)
}

// Check returns an error for options that Init of the backend would reject: an [*OptionsTypeError] for options of
// another backend.
func (r *Registry) Check(name string, options BackendOptions) error {
	b, err := r.backend(name)
	if err != nil {
		return err
	}
	return b.check(options)
}

func (b Backend) check(options BackendOptions) error {
	if b.Check == nil {
		return nil
	}
	return b.Check(options)
}

func (r *Registry) backend(name string) (Backend, error) {
	b, ok := r.backends[name]
	if !ok {
		return Backend{}, &UnknownBackendError{Name: name, Known: r.Backends()}
	}
	return b, nil
}

// OptionsAs returns options as the options type of a backend. It returns an [*OptionsTypeError] for options of another
// type and for a nil pointer.
func OptionsAs[T BackendOptions](backend string, options BackendOptions) (T, error) {
	own, ok := options.(T)
	if ok && !isNil(options) {
		return own, nil
	}
	bad := &OptionsTypeError{Backend: backend, Got: fmt.Sprintf("%T", options), Want: reflect.TypeFor[T]().String()}
	if ok {
		bad.Got = "a nil " + bad.Got
	}
	var none T
	return none, bad
}

// isNil reports whether value is nil or a nil pointer.
func isNil(value any) bool {
	v := reflect.ValueOf(value)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// ErrStore means that Init was called without a store.
var ErrStore = errors.New("the store is nil: " +
	"a group needs one, such as a tcpstore.Client for MASTER_ADDR and MASTER_PORT")

// RegisteredError means that a backend of this name is already registered.
type RegisteredError struct{ Name string }

func (e *RegisteredError) Error() string {
	return fmt.Sprintf("RPC backend %q: already registered; use another name", e.Name)
}

// UnknownBackendError means that no backend of this name is registered.
type UnknownBackendError struct {
	Name  string
	Known []string
}

func (e *UnknownBackendError) Error() string {
	return fmt.Sprintf("RPC backend %q is not registered; known: %s", e.Name,
		cmp.Or(strings.Join(e.Known, ", "), "none"))
}

// OptionsTypeError means that a backend got options of another type. Got and Want are Go types.
type OptionsTypeError struct {
	Backend   string
	Got, Want string
}

func (e *OptionsTypeError) Error() string {
	return fmt.Sprintf("RPC backend %q: the options are %s, but must be %s: create them with NewOptions of that backend",
		e.Backend, e.Got, e.Want)
}
