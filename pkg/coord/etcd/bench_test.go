package etcd

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// BenchmarkOne measures the calls of one agent against Debian's etcd with durable writes.
func BenchmarkOne(b *testing.B) {
	c := startDebian(b, 1)[0]
	waitReady(b, c)
	options := Options{Endpoints: []string{c.client}}
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			s, err := Open(b.Context(), options)
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			s.Close(b.Context())
			b.StartTimer()
		}
	})
	s := open(b, options)
	values := make(chan string, 1)
	ctx, cancel := context.WithCancel(b.Context())
	var watch sync.WaitGroup
	watch.Go(func() {
		s.Watch(ctx, "k", func(batch coord.Batch) error {
			for _, e := range batch.Events {
				values <- string(e.Value)
			}
			return nil
		})
	})
	defer watch.Wait()
	defer cancel()
	b.Run("commit", func(b *testing.B) {
		for b.Loop() {
			mustCommit(b, s, owned("other", "v"))
		}
	})
	b.Run("commit to watch", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			value := fmt.Sprint(i)
			mustCommit(b, s, owned("k", value))
			for value != <-values {
			}
		}
	})
	b.Run("keep alive", func(b *testing.B) {
		for b.Loop() {
			if err := s.KeepAlive(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("begin a watch", func(b *testing.B) {
		for b.Loop() {
			s.Watch(b.Context(), "k", func(coord.Batch) error { return context.Canceled })
		}
	})
}

// BenchmarkMany measures the steps of a rendezvous with all agents at once: sessions, reports, watches and a leader's
// answers. Run it with -benchtime=1x.
func BenchmarkMany(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				many(b, n)
			}
		})
	}
}

func many(b *testing.B, n int) {
	b.Helper()
	c := startDebian(b, 1)[0]
	waitReady(b, c)
	agents := make([]*Store, n)
	options := Options{Endpoints: []string{c.client}, TTL: time.Minute, OpTimeout: time.Minute, DialTimeout: time.Minute}
	// step runs do for every agent at once.
	step := func(name string, do func(ctx context.Context, i int) error) {
		ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
		defer cancel()
		took := make([]time.Duration, n)
		var group sync.WaitGroup
		start := time.Now()
		for i := range n {
			group.Go(func() {
				start := time.Now()
				if err := do(ctx, i); err != nil {
					b.Errorf("%s, agent %d: %v", name, i, err)
				}
				took[i] = time.Since(start)
			})
		}
		group.Wait()
		all := time.Since(start)
		slices.Sort(took)
		b.ReportMetric(all.Seconds()*1000, name+"-ms")
		b.Logf("%-28s %5d ms in all, median %5d ms", name, all.Milliseconds(), took[n/2].Milliseconds())
	}
	step("open", func(ctx context.Context, i int) (err error) {
		agents[i], err = Open(ctx, options)
		return err
	})
	if b.Failed() {
		return
	}
	values := make([]chan string, n)
	ended, stop := context.WithCancel(b.Context())
	var watches sync.WaitGroup
	begin := func(s *Store, key string, out chan<- string) <-chan struct{} {
		started := make(chan struct{})
		watches.Go(func() {
			s.Watch(ended, key, func(batch coord.Batch) error {
				if batch.Resync {
					close(started)
				}
				for _, e := range batch.Events {
					out <- string(e.Value)
				}
				return nil
			})
		})
		return started
	}
	step("begin-watch", func(_ context.Context, i int) error {
		values[i] = make(chan string, 1)
		<-begin(agents[i], fmt.Sprint("answer/", agents[i].Session()), values[i])
		return nil
	})
	reports := make(chan string, n)
	<-begin(agents[0], "agent/", reports)
	report := string(make([]byte, 1000))
	step("report", func(ctx context.Context, i int) error {
		_, err := agents[i].Commit(ctx, nil, []coord.Op{owned(fmt.Sprint("agent/", agents[i].Session()), report)})
		return err
	})
	for range n {
		<-reports
	}
	start := time.Now()
	for i := 0; i < n; i += coord.MaxOps {
		var ops []coord.Op
		for _, s := range agents[i:min(n, i+coord.MaxOps)] {
			ops = append(ops, put(fmt.Sprint("answer/", s.Session()), report))
		}
		mustCommit(b, agents[0], ops...)
	}
	for i := range n {
		<-values[i]
	}
	b.ReportMetric(time.Since(start).Seconds()*1000, "answers-ms")
	b.Logf("%-28s %5d ms in all", "answers", time.Since(start).Milliseconds())
	for range 2 { // the first opens the stream
		step("keep-alive", func(ctx context.Context, i int) error { return agents[i].KeepAlive(ctx) })
	}
	step("list-all", func(ctx context.Context, i int) error {
		if i >= 8 {
			return nil
		}
		agents[i].Watch(ctx, "agent/", func(coord.Batch) error { return context.Canceled })
		return nil
	})
	stop()
	watches.Wait()
	step("close", func(ctx context.Context, i int) error { return agents[i].Close(ctx) })
}
