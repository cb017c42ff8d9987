package pystack

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// BenchmarkPySpy measures side by side what one read takes, and how long the process that is read stands still. The
// process spins in testdata/spin.py, which subtracts the time in which other programs had its CPU. "nobody" is the same
// process while nobody reads it, for 1 ms in place of each read: its delays are those of the machine. Use -benchtime
// 1000x.
func BenchmarkPySpy(b *testing.B) {
	pyspy := testenv.PySpy(b)
	script, err := filepath.Abs("testdata/spin.py")
	if err != nil {
		b.Fatal(err)
	}
	run := start(b, nil, python(b), script)
	run.line()
	p := mustOpen(b, run.pid)
	dump := func(flags ...string) func(*testing.B) {
		return func(b *testing.B) {
			b.Helper()
			args := append([]string{"dump", "--pid", fmt.Sprint(run.pid)}, flags...)
			if out, err := exec.CommandContext(b.Context(), pyspy, args...).CombinedOutput(); err != nil {
				b.Fatalf("py-spy: %v\n%s", err, out)
			}
		}
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for _, bb := range []struct {
		name string
		read func(*testing.B)
	}{
		{"nobody", func(*testing.B) { <-tick.C }},
		{"MainThread", func(b *testing.B) { b.Helper(); mustMain(b, p) }},
		{"Open and Threads", func(b *testing.B) { b.Helper(); mustThreads(b, mustOpen(b, run.pid)) }},
		{"py-spy dump", dump()},
		{"py-spy dump --nonblocking", dump("--nonblocking")},
		{"nobody, again", func(*testing.B) { <-tick.C }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			run.delays()
			for b.Loop() {
				bb.read(b)
			}
			d := run.delays()
			b.ReportMetric(float64(d.Longest)/1e6, "longest-ms")
			b.ReportMetric(float64(d.Total)/1e3/float64(b.N), "delay-µs/op")
			b.ReportMetric(100*float64(d.Waited)/float64(d.Time), "no-CPU-%")
		})
	}
}

// delays are those of a spinning program in nanoseconds, as testdata/spin.py describes them.
type delays struct{ Longest, Total, Waited, Time int64 }

// delays returns the program's delays since the last call.
func (p *program) delays() delays {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		p.t.Fatal(err)
	}
	var d delays
	if err := json.Unmarshal([]byte(p.line()), &d); err != nil {
		p.t.Fatal(err)
	}
	return d
}
