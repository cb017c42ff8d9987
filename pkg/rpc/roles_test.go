package rpc_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"go.uber.org/goleak"

	"github.com/elasticrun/elasticrun/pkg/rdzv/urlrdzv"
	"github.com/elasticrun/elasticrun/pkg/rpc"
)

// What this test binary does in a process of its own, in place of tests.
const (
	roleVariable = "RPC_TEST_ROLE"
	roleWorker   = "worker" // of a job, that a launcher has started
	roleMember   = "member" // of a dynamic group, that does what it is stderr
	roleStore    = "store"  // a store, at the address of storeVariable
)

// quickEnd is for the environment of these processes: the race detector's runtime sleeps for a second when they end.
const quickEnd = "GORACE=atexit_sleep_ms=0"

// Variables for a worker of a job.
const (
	nameVariable  = "RPC_TEST_NAME"  // its name; else workerRANK
	plainVariable = "RPC_TEST_PLAIN" // the rank that has no certificate
	killVariable  = "RPC_TEST_KILL"  // the rank that kills itself while all call, in the first attempt
	storeVariable = "RPC_TEST_STORE"
)

// callsBeforeKill is how many calls a worker that kills itself serves before.
const callsBeforeKill = 50

var (
	where = rpc.NewFunc[struct{}, string]("where") // who answers, and in which attempt
	via   = rpc.NewFunc[string, string]("via")     // where of another worker, in a call of its own
)

// play plays a role and returns the exit code. A process that leaves goroutines behind has failed.
func runRole(role string) int {
	run, ok := map[string]func() error{roleWorker: runWorker, roleMember: runMember, roleStore: runStore}[role]
	if !ok {
		fmt.Fprintf(os.Stderr, "%s=%q: no such role\n", roleVariable, role)
		return 2
	}
	err := run()
	if err == nil {
		err = goleak.Find(goleak.IgnoreTopFunction("os/signal.loop"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// runWorker meets the others, calls them, and says in one line who has answered.
func runWorker() error {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	rank := os.Getenv("RANK")
	if os.Getenv(plainVariable) == rank {
		for _, name := range []string{"CERT", "KEY", "CA"} {
			if err := os.Unsetenv("ELASTICRUN_RPC_" + name); err != nil {
				return err
			}
		}
	}
	name := cmp.Or(os.Getenv(nameVariable), "worker"+rank)
	attempt := os.Getenv("TORCHELASTIC_RESTART_COUNT")
	killSelf := os.Getenv(killVariable)
	if attempt != "0" {
		killSelf = ""
	}
	fns, err := workerFunctions(name+"/"+attempt, killSelf != "" && killSelf == rank)
	if err != nil {
		return err
	}
	g, err := rpc.InitFromEnv(ctx, name, fns)
	if err != nil {
		return err
	}
	defer g.Close()
	if killSelf != "" {
		return callUntilPeerDies(ctx, g)
	}
	line, err := callPeers(ctx, g)
	if err != nil {
		return err
	}
	if err := g.Shutdown(ctx); err != nil {
		return err
	}
	_, err = os.Stdout.WriteString(line) // in one piece, as the others may write to the same pipe
	return err
}

// workerFunctions are what a worker serves. One that is killSelf kills itself on the way.
func workerFunctions(self string, killSelf bool) (*rpc.Functions, error) {
	var served atomic.Int64
	fns := rpc.NewFunctions()
	return fns, errors.Join(
		where.Handle(fns, func(context.Context, struct{}) (string, error) {
			if served.Add(1) == callsBeforeKill && killSelf {
				return "", syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			return self, nil
		}),
		via.Handle(fns, func(ctx context.Context, to string) (string, error) {
			call, _ := rpc.Incoming(ctx)
			there, err := where.Call(ctx, call.Group, to, struct{}{})
			return self + " " + there, err
		}),
	)
}

// next is the worker after this one.
func next(g *rpc.Group) string {
	workers := g.View().Workers
	return workers[(g.Self().ID+1)%len(workers)].Name
}

// converse calls the next worker, by way of it this one, and, on rank 0, all.
func callPeers(ctx context.Context, g *rpc.Group) (line string, err error) {
	one, err := where.Call(ctx, g, next(g), struct{}{})
	if err != nil {
		return "", err
	}
	back, err := via.Call(ctx, g, next(g), g.Self().Name)
	if err != nil {
		return "", err
	}
	workers := g.View().Workers
	all := 0
	if g.Self().ID == 0 {
		futures := make([]*rpc.Future[string], len(workers))
		for i, w := range workers {
			futures[i] = where.Go(ctx, g, w.Name, struct{}{})
		}
		for i, f := range futures {
			if there, err := f.Wait(ctx); err != nil || there != workers[i].Name+"/"+os.Getenv("TORCHELASTIC_RESTART_COUNT") {
				return "", fmt.Errorf("%s answers %q: %w", workers[i], there, err)
			}
			all++
		}
	}
	return fmt.Sprintf("%s of %d: next %s, back %s, called %d\n", g.Self().Name, len(workers), one, back, all), nil
}

// callUntilPeerDies calls the next worker until that is gone, and then waits to be stopped.
func callUntilPeerDies(ctx context.Context, g *rpc.Group) error {
	for {
		if _, err := where.Call(ctx, g, next(g), struct{}{}); errors.Is(err, rpc.ErrConnection) {
			break
		} else if err != nil {
			return fmt.Errorf("a worker that is gone is no %w, but: %w", rpc.ErrConnection, err)
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// runStore serves a store until it is terminated.
func runStore() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	handler, err := urlrdzv.NewSchemes(urlrdzv.Options{}).Rendezvous("tcp://" + os.Getenv(storeVariable) + "?rank=0&world_size=1")
	if err != nil {
		return err
	}
	rendezvous, err := handler.Next(ctx)
	if err != nil {
		return err
	}
	fmt.Println("serving")
	<-ctx.Done()
	return rendezvous.Close()
}
