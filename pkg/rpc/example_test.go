package rpc_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rpc"
)

// sum is a function that all workers know by its name and its types.
var sum = rpc.NewFunc[[]float64, float64]("sum")

// serveSum returns a table of functions with the code of sum.
func serveSum() (*rpc.Functions, error) {
	functions := rpc.NewFunctions()
	err := sum.Handle(functions, func(_ context.Context, xs []float64) (total float64, err error) {
		for _, x := range xs {
			total += x
		}
		return total, nil
	})
	return functions, err
}

// A worker of a job that elasticrun starts: elasticrun --no-python --nproc-per-node 2 ./worker.
func ExampleInitFromEnv() {
	worker := func(ctx context.Context) error {
		functions, err := serveSum()
		if err != nil {
			return err
		}
		g, err := rpc.InitFromEnv(ctx, "worker"+os.Getenv("RANK"), functions)
		if err != nil {
			return err
		}
		defer g.Close() // does nothing after Shutdown
		total, err := sum.Call(ctx, g, "worker0", []float64{1, 2, 3})
		if err != nil {
			return err
		}
		fmt.Println(total)
		return g.Shutdown(ctx)
	}
	if err := worker(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// Two workers in one process form a group over a store in memory. One of them calls the other.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store := kvstore.NewHashStore()
	worker := func(rank int) error {
		functions, err := serveSum()
		if err != nil {
			return err
		}
		g, err := rpc.Init(ctx, rpc.Config{
			Name: fmt.Sprint("worker", rank), Store: store, Rank: rank, WorldSize: 2,
			Functions: []*rpc.Functions{functions},
		})
		if err != nil {
			return err
		}
		defer g.Close()
		if rank == 1 {
			total, err := sum.Call(ctx, g, "worker0", []float64{1, 2, 3})
			if err != nil {
				return err
			}
			fmt.Printf("%v: %v\n", g.Self(), total)
		}
		return g.Shutdown(ctx)
	}
	var workers errgroup.Group
	for rank := range 2 {
		workers.Go(func() error { return worker(rank) })
	}
	if err := workers.Wait(); err != nil {
		fmt.Println(err)
	}
	// Output: worker1 (id 1): 6
}
