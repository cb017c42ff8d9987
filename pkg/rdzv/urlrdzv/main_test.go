package urlrdzv

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain runs this test binary as a worker if the variable workerURL is set, so that a launcher can start it.
func TestMain(m *testing.M) {
	url := os.Getenv(workerURL)
	if url == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if err := worker(url); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const workerURL = "ELASTICRUN_TEST_WORKER_URL"

// worker performs the rendezvous of url, works with the other workers and prints the result.
func worker(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := NewSchemes(Options{}).Rendezvous(url)
	if err != nil {
		return err
	}
	result, err := r.Next(ctx)
	if err != nil {
		return err
	}
	defer result.Close()
	got, err := work(ctx, result)
	if err != nil {
		return err
	}
	fmt.Println("Go", got)
	return nil
}
