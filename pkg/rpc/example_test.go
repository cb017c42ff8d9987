package rpc_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rpc"
)

// sum is known to all workers, and worker0 is asked for it.
var sum = rpc.NewFunc[[]float64, float64]("sum")

func worker(ctx context.Context) error {
	fns := rpc.NewFunctions()
	err := sum.Handle(fns, func(_ context.Context, xs []float64) (total float64, err error) {
		for _, x := range xs {
			total += x
		}
		return total, nil
	})
	if err != nil {
		return err
	}
	g, err := rpc.InitFromEnv(ctx, "worker"+os.Getenv("RANK"), fns)
	if err != nil {
		return err
	}
	defer g.Close()
	total, err := sum.Call(ctx, g, "worker0", []float64{1, 2, 3})
	if err != nil {
		return err
	}
	fmt.Println(total)
	return g.Shutdown(ctx)
}

// A worker as elasticrun starts it: elasticrun --no-python --nproc-per-node 2 ./worker.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := worker(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
