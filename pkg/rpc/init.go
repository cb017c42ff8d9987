package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv/urlrdzv"
	"github.com/elasticrun/elasticrun/pkg/rpc/membership"
)

// Limits of [Init] and [Group.Shutdown] if their context has no deadline.
const (
	InitTimeout     = 5 * time.Minute
	ShutdownTimeout = 5 * time.Minute
)

// Config configures [Init].
type Config struct {
	// Name is the name of this worker, unique in the group: 1 to 127 letters, digits, '-', '_', ':' and '.'.
	Name string

	// Store is the store that the members share. The caller closes it after the group has ended. If it is nil, Init
	// opens the store of [Common].InitMethod, which also defines rank and world size, and the group closes it.
	Store kvstore.Store
	// Rank and WorldSize are the position of this worker in a static group. With a Store, WorldSize 0 means a dynamic
	// group, which ignores Rank. Without a Store both may be 0; otherwise they must agree with InitMethod.
	Rank, WorldSize int

	// Schemes are the schemes of InitMethod, such as one that was registered. Nil means those of [urlrdzv.NewSchemes],
	// with Lookup and Logger.
	Schemes *urlrdzv.Schemes
	// Registry contains the backends. Nil means the result of [NewRegistry].
	Registry *Registry
	// Backend is the name of a backend. "" means [GRPC].
	Backend string
	// Options are the options of the backend. Nil means its defaults.
	Options BackendOptions

	// Functions are the functions that other workers can call here. Nil tables are ignored.
	Functions []*Functions
	// Logger logs the life of the group. The zero Logger logs nothing.
	Logger zerolog.Logger
	// Lookup returns an environment variable; nil means [os.LookupEnv].
	Lookup func(name string) (value string, ok bool)
}

// PlaceError means that the Rank or WorldSize of a [Config] differs from that of its InitMethod.
type PlaceError struct {
	// What is "rank" or "world size".
	What string
	// Given is the value of the Config, Found that of InitMethod.
	Given, Found int
	InitMethod   string
}

func (e *PlaceError) Error() string {
	return fmt.Sprintf("%s %d does not agree with %s, where it is %d: omit Rank and WorldSize, or use the same values",
		e.What, e.Given, e.InitMethod, e.Found)
}

// environmentReader is implemented by options that the environment can complete.
type environmentReader interface {
	WithEnvironment(e Environment) BackendOptions
}

// InitFromEnv joins the static group of all workers of a job that elasticrun or torchrun has started. Rank, world size
// and store come from the environment (env://), and so do the options of the backend [GRPC], see [Environment]. All
// workers of the job must call it, each with its own name. It logs warnings to standard error; [Init] accepts a logger.
func InitFromEnv(ctx context.Context, name string, functions ...*Functions) (*Group, error) {
	log := zerolog.New(os.Stderr).Level(zerolog.WarnLevel).With().Timestamp().Str("worker", name).Logger()
	return Init(ctx, Config{Name: name, Functions: functions, Logger: log})
}

// Init joins a group. For a static group it returns when all members have joined. Its limit is the deadline of ctx, or
// else [InitTimeout]. The group outlives ctx; the caller must end it with Shutdown or Close.
//
// After an error nothing of the group is left. Init rejects invalid input, such as a bad name or a duplicate function
// ([DuplicateError]), before it connects to anything.
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
			fmt.Errorf("the group did not form within %s; to wait longer, pass a context with a deadline",
				seconds.Format(InitTimeout)))
		defer cancel()
	}
	if err := cfg.countGPUs(ctx); err != nil {
		return nil, err
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

// complete validates the configuration and fills in defaults. It connects to nothing.
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
	c.Backend = cmp.Or(c.Backend, GRPC)
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
			env.Group = "" // it separates attempts in the store of the environment
		}
		c.Options = options.WithEnvironment(env)
	}
	return c.Registry.Check(c.Backend, c.Options)
}

// rendezvous returns the store, the rank and the world size.
func (c *Config) rendezvous(ctx context.Context, url string) (*urlrdzv.Result, error) {
	if c.Store != nil {
		return &urlrdzv.Result{Store: c.Store, Rank: c.Rank, WorldSize: c.WorldSize}, nil
	}
	schemes := c.Schemes
	if schemes == nil {
		schemes = urlrdzv.NewSchemes(urlrdzv.Options{Lookup: c.Lookup, Logger: c.Logger})
	}
	handler, err := schemes.Rendezvous(url)
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
