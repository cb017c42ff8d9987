package procs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// killTimeout is short, because these tests wait for it.
const killTimeout = time.Second

// A process in uninterruptible sleep survives SIGKILL. Stop returns within its timeout, and says where in the kernel
// the process hangs. Once the kernel releases it nothing is left.
func TestStopOfAStuckWorker(t *testing.T) {
	for _, tt := range []struct{ name, script, comm string }{
		{"the worker itself", `exec cat "$HANG"`, "(cat)"},
		{"what it left behind", `setsid cat "$HANG" & read line <"$GO"; exit 3`, "(cat)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := testenv.NewHang(t)
			fifo := filepath.Join(t.TempDir(), "go")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			mark := testenv.Mark()
			s, err := NewSupervisor(Options{KillTimeout: killTimeout})
			if err != nil {
				t.Fatal(err)
			}
			healthy := shell(t, 1, "exec sleep 1000")
			spec := shell(t, 0, tt.script)
			spec.Env = append(spec.Env, mark, "HANG="+h.Path, "GO="+fifo)
			healthy.Env = append(healthy.Env, mark)
			g, err := s.Start([]Spec{spec, healthy}, nil)
			if err != nil {
				t.Fatal(err)
			}
			<-h.Reading
			if tt.name != "the worker itself" {
				if err := os.WriteFile(fifo, []byte("\n"), 0); err != nil {
					t.Fatal(err)
				}
				<-g.Exits()
			}
			begun := time.Now()
			err = g.Stop(StopPolicy{Signal: syscall.SIGTERM, Grace: 100 * time.Millisecond, Leftovers: 100 * time.Millisecond})
			took := time.Since(begun)
			var stuck *StuckError
			if !errors.As(err, &stuck) || len(stuck.Processes) != 1 {
				t.Fatalf("Stop: %v", err)
			}
			for _, want := range []string{tt.comm, "state D", "in request_wait_answer, kernel stack: request_wait_answer < ", "ksys_read"} {
				if !strings.Contains(stuck.Processes[0], want) {
					t.Errorf("the report lacks %q: %s", want, stuck.Processes[0])
				}
			}
			if took < killTimeout || took > killTimeout+30*time.Second {
				t.Errorf("Stop took %v", took)
			}
			if err := s.Close(); err == nil {
				t.Error("closed although a process lives")
			}
			h.Release()
			if err := g.Stop(StopPolicy{Signal: syscall.SIGKILL}); err != nil {
				t.Error(err)
			}
			if err := errors.Join(g.Drain(t.Context()), s.Close()); err != nil {
				t.Error(err)
			}
			testenv.NothingLeft(t, mark)
		})
	}
}
