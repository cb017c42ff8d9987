package rpc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv/urlrdzv"
	"github.com/elasticrun/elasticrun/pkg/rpc/membership"
)

// What bounds an [Init] and a [Group.Shutdown] whose context has no deadline.
const (
	InitTimeout     = 5 * time.Minute
	ShutdownTimeout = 5 * time.Minute
)

// Config says which group a worker joins, and as whom.
type Config struct {
	// Name is this worker's, unique in the group: 1 to 127 letters, digits, '-', '_', ':' and '.'.
	Name string

	// Store is what the members share. It stays the caller's to close, after the group. Nil means the one that the options'
	// InitMethod leads to, which the group closes, and which gives rank and world size too.
	Store kvstore.Store
	// Rank and WorldSize are this worker's place in a static group. With a Store, WorldSize 0 means a dynamic group, where Rank
	// means nothing. Without one they may be left out; a WorldSize that is given must be what InitMethod says, and so must the Rank
	// that is given with it.
	Rank, WorldSize int

	// Registry has the backends. Nil means that of [NewRegistry].
	Registry *Registry
	// Backend is the name of one. "" means [GRPC].
	Backend string
	// Options are the backend's. Nil means its defaults.
	Options BackendOptions

	// Functions are what the other workers can call here. Nil tables among them count as empty ones.
	Functions []*Functions
	// Logger is for the group's life. The zero Logger is silent.
	Logger zerolog.Logger
	// Lookup finds a variable of the environment; nil means [os.LookupEnv].
	Lookup func(name string) (value string, ok bool)
}

// PlaceError is a place in the group that disagrees with where the members meet.
type PlaceError struct {
	// What is "rank" or "world size".
	What string
	// Given is that of the [Config], Found that of the URL in InitMethod.
	Given, Found int
	InitMethod   string
}

func (e *PlaceError) Error() string {
	return fmt.Sprintf("%s %d was given, but by %s it is %d: leave Rank and WorldSize out, or give the same",
		e.What, e.Given, e.InitMethod, e.Found)
}

// environmentReader are options that the environment can complete.
type environmentReader interface {
	WithEnvironment(e Environment) BackendOptions
}

// InitFromEnv joins the static group of the job's workers, as elasticrun and torchrun start them: rank, world size and store are those
// of the environment (env://), the backend is [GRPC], and its options are those of [Environment]. All workers of the job
// have to call it, each with a name of its own. Warnings go to the standard error output;
// [Init] takes a logger.
func InitFromEnv(ctx context.Context, name string, functions ...*Functions) (*Group, error) {
	log := zerolog.New(os.Stderr).Level(zerolog.WarnLevel).With().Timestamp().Str("worker", name).Logger()
	return Init(ctx, Config{Name: name, Functions: functions, Logger: log})
}

// Init joins a group, or makes it with the others. In a static group it returns when all members are in. It takes as long as ctx
// lets it, or [InitTimeout]. The group outlives ctx, and is the caller's to end.
//
// After a failure nothing is left of it. Bad input, such as a name that cannot be one or a [DuplicateError], fails before anything is tried.
func Init(ctx context.Context, cfg Config) (*Group, error) {
	g, err := initGroup(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("init RPC as %s: %w", cfg.Name, err)
	}
	return g, nil
}

func initGroup(ctx context.Context, cfg Config) (*Group, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	functions, err := mergeFunctions(cfg.Functions)
	if err != nil {
		return nil, err
	}
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, InitTimeout,
			fmt.Errorf("not all was there within %v; a context with a deadline of its own may wait longer", InitTimeout))
		defer cancel()
	}
	common := cfg.Options.Base().WithDefaults()
	found, err := cfg.rendezvous(ctx, common.InitMethod)
	if err != nil {
		return nil, err
	}
	d := newDispatcher(functions)
	agent, err := cfg.Registry.Init(ctx, cfg.Backend, InitArgs{
		Store: found.Store, Name: cfg.Name, Rank: found.Rank, WorldSize: found.WorldSize,
		Options: cfg.Options, Handle: d.handle, Logger: cfg.Logger,
	})
	if err != nil {
		d.setGroup(nil)
		return nil, errors.Join(err, found.Close())
	}
	g := newGroup(ctx, agent, common.Timeout, found.Close)
	d.setGroup(g)
	return g, nil
}

// complete checks what can be checked before anything is tried, and fills in what was left out.
func (c *Config) complete() error {
	if err := membership.CheckName(c.Name); err != nil {
		return err
	}
	if c.WorldSize < 0 {
		return fmt.Errorf("world size %d: must be at least 1, or 0 for a dynamic group", c.WorldSize)
	}
	if c.WorldSize > 0 && (c.Rank < 0 || c.Rank >= c.WorldSize) {
		return &membership.RankError{Worker: c.Name, Rank: c.Rank, WorldSize: c.WorldSize}
	}
	if c.Lookup == nil {
		c.Lookup = os.LookupEnv
	}
	if c.Backend == "" {
		c.Backend = GRPC
	}
	var err error
	if c.Registry == nil {
		if c.Registry, err = NewRegistry(); err != nil {
			return err
		}
	}
	if c.Options == nil {
		if c.Options, err = c.Registry.NewOptions(c.Backend, Common{}); err != nil {
			return err
		}
	}
	if options, ok := c.Options.(environmentReader); ok {
		env, err := ReadEnvironment(c.Lookup)
		if err != nil {
			return err
		}
		if c.Store != nil {
			env.Group = "" // which is of the environment's store
		}
		c.Options = options.WithEnvironment(env)
	}
	return c.Registry.Check(c.Backend, c.Options)
}

// meet finds the store and this worker's place.
func (c *Config) rendezvous(ctx context.Context, url string) (*urlrdzv.Result, error) {
	if c.Store != nil {
		return &urlrdzv.Result{Store: c.Store, Rank: c.Rank, WorldSize: c.WorldSize}, nil
	}
	handler, err := urlrdzv.NewSchemes(urlrdzv.Options{Lookup: c.Lookup, Logger: c.Logger}).Rendezvous(url)
	if err != nil {
		return nil, err
	}
	found, err := handler.Next(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case c.WorldSize != 0 && c.WorldSize != found.WorldSize:
		err = &PlaceError{What: "world size", Given: c.WorldSize, Found: found.WorldSize, InitMethod: url}
	case (c.WorldSize != 0 || c.Rank != 0) && c.Rank != found.Rank:
		err = &PlaceError{What: "rank", Given: c.Rank, Found: found.Rank, InitMethod: url}
	default:
		return found, nil
	}
	return nil, errors.Join(err, found.Close())
}
