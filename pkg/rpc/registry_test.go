package rpc

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

// fakeOptions are the options of the fake backend; otherOptions are those of another backend.
type (
	fakeOptions  struct{ Common }
	otherOptions struct{ Common }
)

func (o *fakeOptions) Base() Common { return o.Common }
func (o otherOptions) Base() Common { return o.Common }

// fakeAgent records the arguments of Init.
type fakeAgent struct {
	Agent

	args InitArgs
}

func (a fakeAgent) Self() WorkerInfo { return WorkerInfo{Name: a.args.Name, ID: a.args.Rank} }

// fakeBackend returns a backend whose agents are fakeAgents.
func fakeBackend(name string) Backend {
	return Backend{
		NewOptions: func(c Common) (BackendOptions, error) { return &fakeOptions{c}, nil },
		Init: func(_ context.Context, args InitArgs) (Agent, error) {
			if _, err := OptionsAs[*fakeOptions](name, args.Options); err != nil {
				return nil, err
			}
			return fakeAgent{args: args}, nil
		},
	}
}

// registryOf returns a registry with fake backends of these names.
func registryOf(t *testing.T, names ...string) *Registry {
	t.Helper()
	r := new(Registry)
	for _, name := range names {
		if err := r.Register(name, fakeBackend(name)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestRegister(t *testing.T) {
	whole := fakeBackend("GRPC")
	for _, tt := range []struct {
		name    string
		taken   []string
		backend string
		b       Backend
		err     string
		known   []string
	}{
		{name: "the first", backend: "GRPC", b: whole, known: []string{"GRPC"}},
		{name: "another", taken: []string{"TEST", "GRPC"}, backend: "MPI", b: whole, known: []string{"GRPC", "MPI", "TEST"}},
		{name: "case counts", taken: []string{"GRPC"}, backend: "grpc", b: whole, known: []string{"GRPC", "grpc"}},
		{
			name: "taken", taken: []string{"GRPC"}, backend: "GRPC", b: whole, known: []string{"GRPC"},
			err: `RPC backend "GRPC": already registered; use another name`,
		},
		{name: "no name", b: whole, err: "register RPC backend: the name is empty"},
		{name: "no options", backend: "GRPC", b: Backend{Init: whole.Init}, err: `register RPC backend "GRPC": it has no NewOptions`},
		{name: "no init", backend: "GRPC", b: Backend{NewOptions: whole.NewOptions}, err: `register RPC backend "GRPC": it has no Init`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := registryOf(t, tt.taken...)
			err := r.Register(tt.backend, tt.b)
			if errText(err) != tt.err {
				t.Errorf("%v\nwant %s", err, tt.err)
			}
			if diff := cmp.Diff(tt.known, r.Backends()); diff != "" {
				t.Errorf("Backends (-want +got):\n%s", diff)
			}
			if tt.err == "" && !r.Registered(tt.backend) {
				t.Error("the backend is not registered")
			}
		})
	}
	// The same backend cannot be registered twice either, as in torch 2.14 torch/distributed/rpc/backend_registry.py.
	var taken *RegisteredError
	if r := registryOf(t, "GRPC"); !errors.As(r.Register("GRPC", whole), &taken) || taken.Name != "GRPC" {
		t.Errorf("%+v", taken)
	}
}

func TestRegistryString(t *testing.T) {
	for want, names := range map[string][]string{
		"[]": nil, "[BackendType.GRPC]": {"GRPC"}, "[BackendType.A, BackendType.B, BackendType.C]": {"C", "A", "B"},
	} {
		if got := fmt.Sprint(registryOf(t, names...)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	var empty Registry
	if empty.Registered("GRPC") || len(empty.Backends()) != 0 {
		t.Error("the zero value is not empty")
	}
}

func TestNewOptions(t *testing.T) {
	r := registryOf(t, "GRPC")
	for _, tt := range []struct {
		name        string
		given, want Common
	}{
		{name: "defaults", want: Common{Timeout: time.Minute, InitMethod: "env://"}},
		{name: "a timeout", given: Common{Timeout: time.Second}, want: Common{Timeout: time.Second, InitMethod: "env://"}},
		{name: "no timeout", given: Common{Timeout: -1}, want: Common{Timeout: -1, InitMethod: "env://"}},
		{name: "a URL", given: Common{InitMethod: "file:///x"}, want: Common{Timeout: time.Minute, InitMethod: "file:///x"}},
	} {
		got, err := r.NewOptions("GRPC", tt.given)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got.Base()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}

	refused := errors.New("too short")
	if err := r.Register("PICKY", Backend{
		NewOptions: func(Common) (BackendOptions, error) { return nil, refused }, Init: fakeBackend("PICKY").Init,
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.NewOptions("PICKY", Common{}); !errors.Is(err, refused) {
		t.Error(err)
	}
	if _, err := r.Init(t.Context(), "PICKY", InitArgs{Store: kvstore.NewHashStore()}); !errors.Is(err, refused) {
		t.Error(err)
	}
	var unknown *UnknownBackendError
	if _, err := r.NewOptions("TENSORPIPE", Common{}); !errors.As(err, &unknown) || unknown.Name != "TENSORPIPE" {
		t.Error(err)
	} else if want := `RPC backend "TENSORPIPE" is not registered; known: GRPC, PICKY`; err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestInit(t *testing.T) {
	var noStore *kvstore.HashStore
	store := kvstore.NewHashStore()
	const fit = ": create them with NewOptions of that backend"
	for _, tt := range []struct {
		name, backend string
		args          InitArgs
		err           string
		want          Common // options that the backend received
	}{
		{name: "options", backend: "GRPC", args: InitArgs{Store: store, Options: &fakeOptions{Common{Timeout: 5}}}, want: Common{Timeout: 5}},
		{name: "no options", backend: "GRPC", args: InitArgs{Store: store}, want: Common{Timeout: time.Minute, InitMethod: "env://"}},
		{name: "unknown backend", backend: "MPI", args: InitArgs{Store: store}, err: `RPC backend "MPI" is not registered; known: GRPC`},
		{name: "no store", backend: "GRPC", err: `init RPC backend "GRPC" for worker "w": ` + ErrStore.Error()},
		{name: "a nil store", backend: "GRPC", args: InitArgs{Store: noStore}, err: `init RPC backend "GRPC" for worker "w": ` + ErrStore.Error()},
		{
			name: "options of another backend", backend: "GRPC", args: InitArgs{Store: store, Options: otherOptions{}},
			err: `RPC backend "GRPC": the options are rpc.otherOptions, but must be *rpc.fakeOptions` + fit,
		},
		{
			name: "nil options of the right type", backend: "GRPC", args: InitArgs{Store: store, Options: (*fakeOptions)(nil)},
			err: `RPC backend "GRPC": the options are a nil *rpc.fakeOptions, but must be *rpc.fakeOptions` + fit,
		},
		{
			name: "the store comes before the options", backend: "GRPC", args: InitArgs{Options: otherOptions{}},
			err: `init RPC backend "GRPC" for worker "w": ` + ErrStore.Error(),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.args.Name, tt.args.Rank, tt.args.WorldSize = "w", 3, 4
			agent, err := registryOf(t, "GRPC").Init(t.Context(), tt.backend, tt.args)
			if errText(err) != tt.err {
				t.Fatalf("%v\nwant %s", err, tt.err)
			}
			if err != nil {
				return
			}
			if got := agent.Self().String(); got != "w (id 3)" {
				t.Errorf("self is %s", got)
			}
			got := agent.(fakeAgent).args
			if diff := cmp.Diff(tt.want, got.Options.Base()); diff != "" || got.Store != tt.args.Store || got.WorldSize != 4 {
				t.Errorf("the backend got store %v, world size %d and options (-want +got):\n%s", got.Store, got.WorldSize, diff)
			}
		})
	}
	var typed *OptionsTypeError
	_, err := OptionsAs[*fakeOptions]("GRPC", nil)
	if !errors.As(err, &typed) || typed.Got != "<nil>" || typed.Want != "*rpc.fakeOptions" {
		t.Error(err)
	}
	if _, err := (&Registry{}).Init(t.Context(), "GRPC", InitArgs{}); errText(err) != `RPC backend "GRPC" is not registered; known: none` {
		t.Error(err)
	}
}
