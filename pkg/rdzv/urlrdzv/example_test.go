package urlrdzv_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rdzv/urlrdzv"
)

// A worker in Go meets the other workers of its job, whatever they are written in, under elasticrun and under torchrun:
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

	// All are here, or the error says who is not.
	err = kvstore.Barrier(ctx, self.Store, kvstore.BarrierOptions{
		WorldSize: self.WorldSize, Prefix: "start", Timeout: time.Minute,
		Trace: &kvstore.Trace{Rank: self.Rank, Decode: strconv.Itoa},
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
