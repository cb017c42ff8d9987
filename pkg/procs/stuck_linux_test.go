package procs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// A process in uninterruptible sleep outlives SIGKILL: the stop ends all the same, within its bound, and says where
// in the kernel it hangs. Once the kernel lets go nothing is left of it.
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
			s, err := NewSupervisor(Options{})
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
			err = g.Stop(Ladder{Signal: syscall.SIGTERM, Grace: 100 * time.Millisecond, Leftovers: 100 * time.Millisecond})
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
			if took < killGrace || took > killGrace+15*time.Second {
				t.Errorf("Stop took %v", took)
			}
			if err := s.Close(); err == nil {
				t.Error("closed although a process lives")
			}
			h.Release()
			if err := g.Stop(Ladder{Signal: syscall.SIGKILL}); err != nil {
				t.Error(err)
			}
			if err := errors.Join(g.Drain(t.Context()), s.Close()); err != nil {
				t.Error(err)
			}
			testenv.NothingLeft(t, mark)
		})
	}
}

// An agent that has announced its end, and hangs in the kernel with one of its threads, does not keep the guard from ending. It
// keeps back the exit notice, which would prove that nothing is left.
func TestStuckAgent(t *testing.T) {
	h := testenv.NewHang(t)
	j := startGuarded(t)
	p := newPeer(t)
	j.want("notice "+p.Addr().String(), "ok")
	j.guard.WaitDelay = time.Second // what hangs has stderr open
	ps := j.workers()
	j.want("read "+h.Path, "ok")
	<-h.Reading
	j.tell("end")
	j.ends(1)
	if p.noticed(0) {
		t.Error("an exit notice came")
	}
	for _, want := range []string{"exited with code 7 <nil> [", "in uninterruptible sleep in request_wait_answer"} {
		if !strings.Contains(j.stderr.String(), want) {
			t.Errorf("the guard does not say %q:\n%s", want, &j.stderr)
		}
	}
	if left := living(ps, false); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	h.Release()
}

// What the kernel shows of threads, and does not.
func TestStuckIn(t *testing.T) {
	const rest = " 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 12345 100 200"
	self := process{pid: os.Getpid(), comm: "python3", state: 'D'}
	pid := filepath.Base(mustReadlink(t, "/proc/self"))
	deep := strings.Repeat("[<0>] f+0x1/0x2\n", maxStuckFrames+1)
	for _, tt := range []struct {
		name  string
		files map[string]string // below task/; a stack "EACCES" may not be read
		want  string
	}{
		{name: "no thread to be seen"},
		{
			name:  "told in full",
			files: map[string]string{pid + "/stat": pid + " (python3) D" + rest, pid + "/wchan": "nfs_wait", pid + "/stack": "[<0>] nfs_wait+0x12/0x40 [nfs]\n[<0>] vfs_read+0x1/0x2\n"},
			want:  ", in uninterruptible sleep in nfs_wait, kernel stack: nfs_wait < vfs_read",
		},
		{
			name:  "not told",
			files: map[string]string{pid + "/stat": pid + " (python3) D" + rest, pid + "/wchan": "0", pid + "/stack": "EACCES"},
			want:  ", in uninterruptible sleep (the kernel does not say where), kernel stack for root only",
		},
		{
			name:  "a kernel without stacks",
			files: map[string]string{pid + "/stat": pid + " (python3) D" + rest},
			want:  ", in uninterruptible sleep (the kernel does not say where), no kernel stack: no such file or directory",
		},
		{
			name:  "a deep stack",
			files: map[string]string{pid + "/stat": pid + " (python3) D" + rest, pid + "/wchan": "f", pid + "/stack": deep},
			want:  ", in uninterruptible sleep in f, kernel stack: " + strings.Repeat("f < ", maxStuckFrames) + "…",
		},
		{
			name: "many threads, one of which would go",
			files: map[string]string{
				pid + "/stat": pid + " (python3) Z" + rest,
				"11/stat":     "11 (a) D" + rest, "12/stat": "12 (b) D" + rest, "13/stat": "13 (c) R" + rest,
				"14/stat": "14 (d) D" + rest, "15/stat": "15 (e) D" + rest, "16/stat": "16 (f) D" + rest,
				"11/wchan": "a", "12/wchan": "b", "14/wchan": "d", "15/wchan": "e", "11/stack": "", "12/stack": "", "14/stack": "", "15/stack": "",
			},
			want: ", thread 11 (a) in uninterruptible sleep in a, no kernel stack, thread 12 (b) in uninterruptible sleep in b, no kernel stack" +
				", thread 14 (d) in uninterruptible sleep in d, no kernel stack, thread 15 (e) in uninterruptible sleep in e, no kernel stack, and 1 more threads",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proc := t.TempDir()
			for name, text := range tt.files {
				path := filepath.Join(proc, pid, "task", name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if text == "EACCES" {
					if os.Getuid() == 0 {
						t.Skip("root may read everything")
					}
					if err := os.WriteFile(path, nil, 0); err != nil {
						t.Fatal(err)
					}
				} else if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tt.want, stuckIn(proc, self)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if os.Getuid() != 0 {
		if got := stuckIn("/proc", process{pid: 1}); got != ", which this user may not signal" {
			t.Errorf("of init: %q", got)
		}
	}
}

func mustReadlink(t *testing.T, path string) string {
	t.Helper()
	to, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return to
}
