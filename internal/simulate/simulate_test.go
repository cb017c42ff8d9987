package simulate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// swarmArgs is the argument that makes this test binary the agents' process.
const swarmArgs = "simulate-agents"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == swarmArgs {
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == swarmArgs {
		if err := Agents(context.Background(), os.Stdin, os.Stdout, zerolog.Nop()); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// small returns options of a simulation that takes a second or two.
func small() Options {
	return Options{
		Agents: 20, Min: 1, Max: 24, Rounds: 1, Voters: 1, KeepAlive: time.Second, Timeout: 2 * time.Minute, Seed: 7,
		Logger: zerolog.Nop(),
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	for _, voters := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d voters", voters), func(t *testing.T) {
			t.Parallel()
			testRun(t, voters)
		})
	}
}

func testRun(t *testing.T, voters int) {
	t.Helper()
	o := small()
	o.Voters = voters
	o.FailAfter, o.Kill, o.Leave, o.Cut, o.Join, o.Max = new(time.Duration), 3, 2, 2, 7, 22
	var steps []Step
	o.Step = func(s Step) { steps = append(steps, s) }
	r, err := Run(t.Context(), o, []string{os.Args[0], swarmArgs})
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		name  string
		nodes int
	}{
		{"joined and ranked", 20},
		{"had a worker fail", 20},
		{"vanished", 17},
		{"left", 15},
		{"fell silent", 13},
		{"came late", 20},
		{"were told of the end", 20},
	}
	if len(r.Steps) != len(want) || len(steps) != len(want) {
		t.Fatalf("%d and %d steps, want %d", len(r.Steps), len(steps), len(want))
	}
	for i, s := range r.Steps {
		if s.Name != want[i].name || s.Nodes != want[i].nodes || s.Seconds <= 0 || s.Received.Messages == 0 ||
			s.Sent.Bytes == 0 {
			t.Errorf("step %d: %+v, want %v", i, s, want[i])
		}
		if i > 0 && i < len(want)-1 && s.Round <= r.Steps[i-1].Round {
			t.Errorf("step %d ended in round %d, the one before in %d", i, s.Round, r.Steps[i-1].Round)
		}
		if (s.Stopped > 0) != (s.Name == "had a worker fail") || s.Stopped > s.Seconds {
			t.Errorf("step %d: all stopped after %v of %v s", i, s.Stopped, s.Seconds)
		}
	}
	for name, u := range map[string]Usage{"store": r.Store, "swarm": r.Swarm} {
		if u.CPU <= 0 || u.RSS < 1<<20 || u.RSS > 1<<30 {
			t.Errorf("%s took %+v", name, u)
		}
	}
}

// TestSpares checks that agents beyond the maximum number of nodes replace lost ones.
func TestSpares(t *testing.T) {
	t.Parallel()
	o := small()
	o.Max, o.Kill, o.Join, o.Rounds = 12, 4, 2, 2
	r, err := Run(t.Context(), o, []string{os.Args[0], swarmArgs})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range r.Steps {
		if s.Nodes != 12 {
			t.Errorf("step %d: %+v, want 12 nodes", i, s)
		}
	}
	if last := r.Steps[len(r.Steps)-1]; last.Agents != 16 {
		t.Errorf("%d agents learned of the end, want 16", last.Agents)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	o := small()
	o.FailAfter = new(time.Hour)
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	o.Step = func(Step) { cancel(interrupted) }
	if _, err := Run(ctx, o, []string{os.Args[0], swarmArgs}); !errors.Is(err, interrupted) {
		t.Errorf("%v, want %v", err, interrupted)
	}
}

func TestRunReportsMissingNodes(t *testing.T) {
	o := small()
	o.Min, o.Max, o.Timeout = 30, 30, 500*time.Millisecond // more nodes than agents, which config would refuse
	_, err := Run(t.Context(), o, []string{os.Args[0], swarmArgs})
	if !errors.Is(err, rdzv.ErrTimeout) || !strings.Contains(err.Error(),
		"20 agents joined and ranked, and 500ms later no round of 20 nodes had begun") {
		t.Errorf("%v", err)
	}
	if _, err = Run(t.Context(), small(), []string{os.Args[0], swarmArgs, "not"}); err == nil ||
		!strings.Contains(err.Error(), "the agents' process") {
		t.Errorf("a process that ends at once: %v", err)
	}
}
