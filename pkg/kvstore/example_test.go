package kvstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
)

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	store := kvstore.NewHashStore() // or a tcpstore.Client, or a filestore.Store
	job := kvstore.NewPrefixStore("job7", store)

	go func() {
		if err := job.Set(ctx, "master", []byte("node0:29500")); err != nil {
			panic(err)
		}
	}()
	master, err := job.Get(ctx, "master") // blocks until the key is set
	if err != nil {
		panic(err)
	}
	restarts, err := job.Add(ctx, "restarts", 1)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s, restart %d\n", master, restarts)
	// Output: node0:29500, restart 1
}

func ExampleSynchronize() {
	ctx, store := context.Background(), kvstore.NewHashStore()
	const worldSize = 3
	hosts := make(chan [][]byte)
	for rank := range worldSize {
		go func() {
			all, err := kvstore.Synchronize(ctx, store, fmt.Appendf(nil, "node%d", rank), rank, worldSize, "hosts/", time.Minute)
			if err != nil {
				panic(err)
			}
			hosts <- all
		}()
	}
	for range worldSize {
		fmt.Printf("%s\n", <-hosts)
	}
	// Output:
	// [node0 node1 node2]
	// [node0 node1 node2]
	// [node0 node1 node2]
}
