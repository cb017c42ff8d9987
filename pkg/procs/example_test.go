package procs_test

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
)

// Start two workers, wait for the first exit, and stop the other worker.
func Example() {
	sup, err := procs.NewSupervisor(procs.Options{Workers: 2})
	if err != nil {
		panic(err)
	}
	group, err := sup.Start([]procs.Spec{
		{LocalRank: 0, Argv: []string{"sh", "-c", "exit 3"}, Env: os.Environ()},
		{LocalRank: 1, Argv: []string{"sleep", "1000"}, Env: os.Environ()},
	}, nil)
	if err != nil {
		panic(err)
	}
	exit := <-group.Exits()
	fmt.Printf("worker %d %v\n", exit.LocalRank, exit)

	if err := group.Stop(procs.StopPolicy{Signal: syscall.SIGTERM, Grace: 10 * time.Second}); err != nil {
		panic(err)
	}
	exit = <-group.Exits()
	fmt.Printf("worker %d %v (stopped: %v)\n", exit.LocalRank, exit, exit.Stopped)

	if err := group.Drain(context.Background()); err != nil {
		panic(err)
	}
	if err := sup.Close(); err != nil {
		panic(err)
	}
	// Output:
	// worker 0 exited with code 3
	// worker 1 killed by signal 15 (SIGTERM) (stopped: true)
}
