package scenario

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// TestObserver checks that a stopped process counts as alive, that a zombie does not, and that a process with another
// mark does not belong to the job.
func TestObserver(t *testing.T) {
	t.Parallel()
	mark := testenv.Mark()
	o := observe(t, mark)
	begin := monotonic()
	start := func(env ...string) *exec.Cmd {
		cmd := exec.Command("sleep", "1000")
		cmd.Env = append(append(os.Environ(), workerEnv(3, 2, 1, "10.75.0.1", 4000)...), env...)
		cmd.Env = append(cmd.Env, "TORCHELASTIC_RUN_ID=job", "HOSTNAME=node7")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return cmd
	}
	worker := start(mark)
	start(testenv.Mark()) // another job's process
	if err := worker.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await(t, "the stopped process to be seen twice", func() bool {
		alive := o.alive()
		return len(alive) == 1 && alive[0].last > alive[0].first+0.1
	})
	if err := worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	await(t, "the killed process to be gone", func() bool { return len(o.alive()) == 0 })
	killed := monotonic()
	want := []life{{
		Job: "job", Round: 3, World: 2, Rank: 1, Group: 1, Addr: "10.75.0.1", Port: 4000, Kind: "seen", Host: "node7",
		PID: worker.Process.Pid,
	}}
	got := o.seen()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(life{})); diff != "" {
		t.Fatalf("seen (-want +got):\n%s", diff)
	}
	if l := got[0]; l.first < begin || l.last > killed || l.last < l.first {
		t.Errorf("it was alive between %.3f and %.3f, and was seen from %.3f to %.3f", begin, killed, l.first, l.last)
	}
}
