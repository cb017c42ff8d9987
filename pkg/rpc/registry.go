package rpc

import (
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
	// DefaultTimeout is how long a call may take if nothing else is said.
	DefaultTimeout = 60 * time.Second
	// DefaultInitMethod is the URL by which a group finds its store if nothing else is said: that of the environment.
	DefaultInitMethod = "env://"
)

// Common are the options that every backend has.
type Common struct {
	// Timeout bounds a call whose context has no deadline. 0 means DefaultTimeout, and a negative one that nothing does.
	Timeout time.Duration
	// InitMethod is the URL by which the store is found, one that urlrdzv.NewSchemes knows; "" means DefaultInitMethod.
	InitMethod string
}

// WithDefaults returns the options with what they leave open filled in.
func (c Common) WithDefaults() Common {
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.InitMethod == "" {
		c.InitMethod = DefaultInitMethod
	}
	return c
}

// BackendOptions are the options of one backend, of a type of its own; see [OptionsAs].
type BackendOptions interface {
	// Base returns those that every backend has.
	Base() Common
}

// Handler runs what other workers call. The agent hands every incoming call to it; ctx ends when the call's time is over or
// nobody waits for the answer any more.
type Handler func(ctx context.Context, from WorkerInfo, function string, payload []byte) (answer []byte, err error)

// InitArgs are what a backend needs to make this worker a member of a group.
type InitArgs struct {
	// Store is where the members meet. It stays the caller's, who closes it after the group's end.
	Store kvstore.Store
	// Name and Rank are this worker's. A dynamic group does not ask for the rank.
	Name string
	Rank int
	// WorldSize is the number of members of a static group; 0 makes it a dynamic one.
	WorldSize int
	// Options are of the backend's own type; nil means those that its NewOptions makes of the defaults.
	Options BackendOptions
	// Handle gets all calls of other members.
	Handle Handler
	Logger zerolog.Logger
}

// Backend is a way to call other workers.
type Backend struct {
	// NewOptions makes options of the common ones, whose defaults are filled in.
	NewOptions func(Common) (BackendOptions, error)
	// Check refuses options that Init would refuse, before anything is tried. Nil means that there is nothing to refuse.
	Check func(options BackendOptions) error
	// Init makes the worker a member of its group. Store and Options of args are there.
	Init func(ctx context.Context, args InitArgs) (Agent, error)
}

// Registry finds backends by name (seed 004, BackendType). The zero value is empty and ready. It is filled before it is
// used: Register is not safe beside other calls.
type Registry struct {
	backends map[string]Backend
}

// Register adds a backend. A taken name is always refused, with a [*RegisteredError]; so are an empty name and a backend
// that lacks a function.
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

// Registered tells whether there is a backend of this name.
func (r *Registry) Registered(name string) bool {
	_, ok := r.backends[name]
	return ok
}

// Backends returns the registered names, sorted.
func (r *Registry) Backends() []string {
	return slices.Sorted(maps.Keys(r.backends))
}

// String lists the backends as the seed prints them, sorted: "[BackendType.GRPC, BackendType.TEST]".
func (r *Registry) String() string {
	list := r.Backends()
	for i, name := range list {
		list[i] = "BackendType." + name
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// NewOptions makes options of a backend; what common leaves open it gets as defaults.
func (r *Registry) NewOptions(name string, common Common) (BackendOptions, error) {
	b, err := r.backend(name)
	if err != nil {
		return nil, err
	}
	return b.NewOptions(common.WithDefaults())
}

// Init makes this worker a member of a group by the backend of that name. Without a store it fails with ErrStore, and with
// options of another backend with an [*OptionsTypeError], if the backend checks them.
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

// Check refuses options that the backend's Init would refuse: an [*OptionsTypeError] for those of another backend.
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

// OptionsAs returns options as the type that a backend has its own in. For options of another type, and a nil pointer of
// the right one, it fails with an [*OptionsTypeError].
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

// isNil tells whether an interface holds nothing, or a pointer that is nil.
func isNil(value any) bool {
	v := reflect.ValueOf(value)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// ErrStore says that a group was to begin without a store.
var ErrStore = errors.New("the store is nil: members meet in one, such as the tcpstore.Client of MASTER_ADDR and MASTER_PORT")

// RegisteredError says that there is a backend of this name already.
type RegisteredError struct{ Name string }

func (e *RegisteredError) Error() string {
	return fmt.Sprintf("RPC backend %q: already registered; take another name", e.Name)
}

// UnknownBackendError says that no backend is registered under a name.
type UnknownBackendError struct {
	Name  string
	Known []string
}

func (e *UnknownBackendError) Error() string {
	known := strings.Join(e.Known, ", ")
	if known == "" {
		known = "none"
	}
	return fmt.Sprintf("RPC backend %q is not registered; known: %s", e.Name, known)
}

// OptionsTypeError says that a backend got options that are not its own. Got and Want are Go types.
type OptionsTypeError struct {
	Backend   string
	Got, Want string
}

func (e *OptionsTypeError) Error() string {
	return fmt.Sprintf("RPC backend %q: the options are %s, and must be %s: let NewOptions of that backend make them", e.Backend, e.Got, e.Want)
}
