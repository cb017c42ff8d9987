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

// Roles of a child process of this test binary.
const (
	roleVariable = "RPC_TEST_ROLE"
	roleWorker   = "worker" // worker of a job that a launcher has started
	roleMember   = "member" // member of a group that executes commands
	roleStore    = "store"  // store at the address of storeVariable
)

// quickEnd disables the second that the runtime of the race detector sleeps at exit.
const quickEnd = "GORACE=atexit_sleep_ms=0"

// Variables for a worker of a job.
const (
	nameVariable  = "RPC_TEST_NAME"  // its name; default workerRANK
	plainVariable = "RPC_TEST_PLAIN" // rank without a certificate
	killVariable  = "RPC_TEST_KILL"  // rank that kills itself during calls in the first attempt
	storeVariable = "RPC_TEST_STORE"
)

// callsBeforeKill is how many calls a worker serves before it kills itself.
const callsBeforeKill = 50

var (
	where = rpc.NewFunc[struct{}, string]("where") // returns the name and the attempt of the worker
	via   = rpc.NewFunc[string, string]("via")     // calls where on another worker
)

// runRole runs a role and returns the exit code. A process that leaks goroutines fails.
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

// runWorker joins the group, calls the other workers and prints one line with the answers.
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
	_, err = os.Stdout.WriteString(line) // in one write, because all workers share the pipe
	return err
}

// workerFunctions returns the functions that a worker serves. With killSelf the worker kills itself after some calls.
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

// next returns the name of the worker with the next id.
func next(g *rpc.Group) string {
	workers := g.View().Workers
	return workers[(g.Self().ID+1)%len(workers)].Name
}

// callPeers calls the next worker, this worker by way of the next one, and, on rank 0, all workers.
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

// callUntilPeerDies calls the next worker until that worker is gone. Then it waits to be stopped.
func callUntilPeerDies(ctx context.Context, g *rpc.Group) error {
	for {
		if _, err := where.Call(ctx, g, next(g), struct{}{}); errors.Is(err, rpc.ErrConnection) {
			break
		} else if err != nil {
			return fmt.Errorf("a worker that is gone is not %w, but: %w", rpc.ErrConnection, err)
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// runStore serves a store until SIGTERM.
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
