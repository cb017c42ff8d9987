package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// alone trains in one goroutine what a server and its trainers train together.
func alone(images digits, trainers, steps int) model {
	m := newModel()
	for range steps {
		gradients := make([][]float64, trainers)
		for i := range gradients {
			gradients[i] = images.training.share(i, trainers).gradient(m.Weights)
		}
		m.step(gradients, len(images.training.images))
	}
	return m
}

// finalLine returns the last line of a run that ends with this model.
func finalLine(images digits, m model) string {
	return fmt.Sprintf("final loss %.6f accuracy %.2f%%", images.training.loss(m.Weights), 100*images.test.accuracy(m.Weights))
}

// direct is the exchange of the server for a trainer of the same process.
type direct struct {
	*exchange
	rank int
}

func (d direct) push(_ context.Context, g gradient) error { return d.exchange.push(d.rank, g) }

// together trains with a server and trainers that call it directly, and returns the final model of the server.
func together(t *testing.T, o options, images digits, out io.Writer) model {
	t.Helper()
	s, err := newServer(o, images, out)
	if err != nil {
		t.Fatal(err)
	}
	atOnce(t, o, func(ctx context.Context, o options) error {
		if o.rank == serverRank {
			return s.work(ctx, nil)
		}
		return newTrainer(o, images, io.Discard).train(ctx, direct{s.exchange, o.rank})
	})
	return s.model
}

// atOnce runs the work of all ranks concurrently. The first error ends the others and the test.
func atOnce(t *testing.T, o options, work func(context.Context, options) error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var workers sync.WaitGroup
	for rank := range o.worldSize {
		own := o
		own.rank = rank
		workers.Go(func() {
			if err := work(ctx, own); err != nil {
				cancel(fmt.Errorf("rank %d: %w", rank, err))
			}
		})
	}
	workers.Wait()
	if ctx.Err() != nil {
		t.Fatal(context.Cause(ctx))
	}
}

func TestTraining(t *testing.T) {
	t.Parallel()
	images := testDigits(t)
	for _, trainers := range []int{1, 3} {
		t.Run(fmt.Sprint(trainers), func(t *testing.T) {
			t.Parallel()
			want := alone(images, trainers, 10)
			o := options{checkpointDir: t.TempDir(), checkpointEvery: 5, reportEvery: 10, steps: 6, worldSize: trainers + 1}
			var first, second strings.Builder
			if diff := cmp.Diff(alone(images, trainers, 6), together(t, o, images, &first)); diff != "" {
				t.Errorf("after 6 steps (-want +got):\n%s", diff)
			}
			o.steps, o.attempt = 10, 1 // continues from the checkpoint
			if diff := cmp.Diff(want, together(t, o, images, &second)); diff != "" {
				t.Errorf("after 10 steps (-want +got):\n%s", diff)
			}
			begin := fmt.Sprintf("attempt 1: a server and %d trainers, 1400 training images, continuing after step 6\n", trainers)
			if !strings.HasPrefix(second.String(), begin) {
				t.Errorf("printed %q, want %q first", second.String(), begin)
			}
		})
	}
}

// The output, and the result file for programs.
func TestReport(t *testing.T) {
	t.Parallel()
	images := testDigits(t)
	o := options{checkpointDir: t.TempDir(), checkpointEvery: 10, reportEvery: 2, steps: 5, worldSize: 3}
	var out strings.Builder
	m := together(t, o, images, &out)
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 5 || lines[0] != "attempt 0: a server and 2 trainers, 1400 training images, starting without a checkpoint" ||
		!strings.HasPrefix(lines[1], "step   2  loss ") || !strings.HasPrefix(lines[2], "step   4  loss ") ||
		lines[3] != finalLine(images, m) {
		t.Errorf("printed:\n%s", out.String())
	}
	result, err := os.ReadFile(filepath.Join(o.checkpointDir, "result.txt"))
	want := fmt.Sprintf("loss %v\naccuracy %.2f%%\nrestarts 0\n", images.training.loss(m.Weights), 100*images.test.accuracy(m.Weights))
	if diff := cmp.Diff(want, string(result)); err != nil || diff != "" {
		t.Errorf("%v; result.txt (-want +got):\n%s", err, diff)
	}
}

// A server that cannot write a checkpoint returns the error.
func TestCheckpointFails(t *testing.T) {
	t.Parallel()
	o := options{checkpointDir: t.TempDir(), checkpointEvery: 1, reportEvery: 1, steps: 1, worldSize: 2}
	s, err := newServer(o, testDigits(t), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(s.checkpoint+".new", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.exchange.push(1, gradient{Values: values(1)}); err != nil {
		t.Fatal(err)
	}
	if err := s.work(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "checkpoint.json.new: is a directory") {
		t.Errorf("%v, want the file that cannot be written", err)
	}
}
