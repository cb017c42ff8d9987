package urlrdzv_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv/urlrdzv"
)

// A worker in Go joins the other workers of its job, in Go or in Python, under elasticrun or torchrun:
//
//	elasticrun --nproc-per-node 4 --no-python ./worker
func ExampleNewSchemes() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := worker(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func worker(ctx context.Context) error {
	rendezvous, err := urlrdzv.NewSchemes(urlrdzv.Options{}).Rendezvous("env://")
	if err != nil {
		return err
	}
	self, err := rendezvous.Next(ctx)
	if err != nil {
		return err
	}
	defer self.Close()

	// Wait for all workers. The error names those that are missing.
	err = kvstore.Barrier(ctx, self.Store, kvstore.BarrierOptions{
		WorldSize: self.WorldSize, Prefix: "start", Timeout: time.Minute,
		Trace: &kvstore.Trace{Rank: self.Rank},
	})
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	hosts, err := kvstore.Synchronize(ctx, self.Store, []byte(host), self.Rank, self.WorldSize, "hosts/", 0)
	if err != nil {
		return err
	}
	fmt.Printf("rank %d of %d, on %s\n", self.Rank, self.WorldSize, hosts)
	return nil
}

// A worker that is alone needs no launcher.
func ExampleSchemes_Rendezvous() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	rendezvous, err := urlrdzv.NewSchemes(urlrdzv.Options{}).Rendezvous("file://" + dir + "/store?rank=0&world_size=1")
	if err != nil {
		fmt.Println(err)
		return
	}
	self, err := rendezvous.Next(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer self.Close()
	fmt.Printf("rank %d of %d\n", self.Rank, self.WorldSize)
	// Output: rank 0 of 1
}
