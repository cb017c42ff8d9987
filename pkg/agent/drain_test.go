package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticrun/elasticrun/pkg/procs"
)

// The output of the previous workers is written before the next ones start, however long its reader takes.
func TestSlowReaderSlowsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const reader = time.Hour
		b := newHarness(t, WorkerSpec{MaxRestarts: 1}, runsOn, allSucceed)
		wait := b.start(t.Context())
		begun := time.Now()
		b.group().onDrain = func(ctx context.Context) {
			select {
			case <-ctx.Done():
				if time.Since(begun) > settleTimeout {
					t.Error("output was given up")
				}
			case <-time.After(time.Until(begun.Add(reader))):
			}
		}
		b.group().exit(procs.Exit{LocalRank: 1, Code: 1})
		if r, err := wait(); err != nil || r.IsFailed() {
			t.Errorf("%+v, %v", r, err)
		}
		if took := time.Since(begun); took.Round(time.Second) != reader {
			t.Errorf("the job took %v", took)
		}
	})
}

// A console that nobody reads does not delay the report that the workers are gone, and delays the end of a failed job
// for a limited time. A job that has succeeded waits for its reader.
func TestUnreadConsole(t *testing.T) {
	const reader = time.Hour // it comes back then
	for _, tt := range []struct {
		name string
		exit procs.Exit
		want time.Duration
	}{
		{"after a failure", procs.Exit{LocalRank: 1, Code: 1}, settleTimeout + failedDrainTimeout + drainTimeout},
		{"after success", procs.Exit{LocalRank: 1}, reader},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHarness(t, WorkerSpec{}, runsOn)
				wait := b.start(t.Context())
				begun := time.Now()
				b.group().onDrain = func(ctx context.Context) {
					select {
					case <-ctx.Done():
					case <-time.After(time.Until(begun.Add(reader))):
					}
				}
				b.group().exit(procs.Exit{LocalRank: 0})
				b.group().exit(tt.exit)
				time.AfterFunc(settleTimeout+time.Second, func() {
					calls := b.list()
					if last := calls[len(calls)-1]; last != "rendezvous" && last != "succeed" {
						t.Errorf("calls after the time to settle: %v", calls)
					}
				})
				if _, err := wait(); err != nil {
					t.Error(err)
				}
				if took := time.Since(begun); took.Round(time.Second) != tt.want {
					t.Errorf("the end came after %v, want %v", took, tt.want)
				}
			})
		})
	}
}
