package workerlog

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The benchmarks pass this much through per worker; set TEE_MB for other sizes.
const defaultTeeMB = 20

// BenchmarkTee80 and BenchmarkTee8K measure four workers that write lines of 80 bytes and 8 KiB to a teed stdout. They
// run the same producers through four tee(1) into one cat for comparison. Metrics: x-tee is our wall time as a multiple
// of theirs, x-cpu the same for the CPU time of all processes together (more reliable on a busy machine), cpu-s/GB the
// CPU time that this process alone spends on a GB.
func BenchmarkTee80(b *testing.B) { benchmarkTee(b, 80, 64<<10) }

func BenchmarkTee8K(b *testing.B) { benchmarkTee(b, 8<<10, 64<<10) }

// BenchmarkTee80Unbuffered has one write per line, as python3 -u does.
func BenchmarkTee80Unbuffered(b *testing.B) { benchmarkTee(b, 80, 80) }

func benchmarkTee(b *testing.B, line, write int) {
	b.Helper()
	mb := defaultTeeMB
	if s := os.Getenv("TEE_MB"); s != "" {
		mb, _ = strconv.Atoi(s)
	}
	total := mb << 20 / line * line
	var theirs, ours, cpu, theirsAll, oursAll time.Duration
	tee := func() {
		wall, self, children := measured(b, func(dir string) { teePeer(b, dir, total, line, write) })
		theirs += wall
		theirsAll += self + children
	}
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 { // neither side always goes first
			tee()
		}
		wall, self, children := measured(b, func(dir string) { teeStreams(b, dir, total, line, write) })
		ours += wall
		cpu += self
		oursAll += self + children
		if i%2 == 1 {
			tee()
		}
	}
	b.SetBytes(int64(4 * total))
	b.ReportMetric(ours.Seconds()/theirs.Seconds(), "x-tee")
	b.ReportMetric(oursAll.Seconds()/theirsAll.Seconds(), "x-cpu")
	b.ReportMetric(cpu.Seconds()/(float64(b.N*4*total)/1e9), "cpu-s/GB")
	b.ReportMetric(ours.Seconds()/float64(b.N), "s/ours")
	b.ReportMetric(theirs.Seconds()/float64(b.N), "s/tee")
}

// teeStreams runs four producers through four streams to one cat.
func teeStreams(b *testing.B, dir string, total, line, write int) {
	b.Helper()
	cat := exec.Command("cat")
	cat.Stdout, _ = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	read, writeEnd, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	cat.Stdin = read
	if err := cat.Start(); err != nil {
		b.Fatal(err)
	}
	read.Close()
	console := NewConsole(writeEnd, os.Stderr)
	var streams []*Stream
	var workers []*exec.Cmd
	for i := range 4 {
		for _, std := range []StreamSet{Stdout, Stderr} {
			s, err := OpenStream(Output{
				File:    filepath.Join(dir, fmt.Sprintf("ours%d.%d", i, std)),
				Console: true, Prefix: Prefix{fmt.Sprintf("[default%d]:", i)},
			}, console, std)
			if err != nil {
				b.Fatal(err)
			}
			streams = append(streams, s)
		}
		worker := exec.Command(os.Args[0], producerArgs(i, total, line, write)...)
		worker.Env = append(os.Environ(), helperEnv+"=produce")
		worker.Stdout, worker.Stderr = streams[2*i].ChildFile(), streams[2*i+1].ChildFile()
		if err := worker.Start(); err != nil {
			b.Fatal(err)
		}
		workers = append(workers, worker)
		streams[2*i].Start()
		streams[2*i+1].Start()
	}
	for _, s := range streams {
		if err := s.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	for _, worker := range workers {
		if err := worker.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	if err := console.Close(); err != nil {
		b.Fatal(err)
	}
	writeEnd.Close()
	if err := cat.Wait(); err != nil {
		b.Fatal(err)
	}
}

// teePeer runs the same producers through tee(1) to one cat.
func teePeer(b *testing.B, dir string, total, line, write int) {
	b.Helper()
	var script strings.Builder
	script.WriteString("( ")
	for i := range 4 {
		fmt.Fprintf(&script, "%s %s | tee %s & ", os.Args[0],
			strings.Join(producerArgs(i, total, line, write), " "), filepath.Join(dir, fmt.Sprintf("tee%d", i)))
	}
	script.WriteString("wait ) | cat >/dev/null")
	cmd := exec.Command("sh", "-c", script.String())
	cmd.Env = append(os.Environ(), helperEnv+"=produce")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		b.Fatal(err)
	}
}

func producerArgs(i, total, line, write int) []string {
	return []string{strconv.Itoa(total), strconv.Itoa(line), strconv.Itoa(write), string(rune('a' + i))}
}

// measured runs f with an empty folder and returns its wall time and the CPU time
// that this process and its children took.
func measured(b *testing.B, f func(dir string)) (wall, self, children time.Duration) {
	b.Helper()
	dir := b.TempDir()
	self, children = cpuTime(b, syscall.RUSAGE_SELF), cpuTime(b, syscall.RUSAGE_CHILDREN)
	start := time.Now()
	f(dir)
	wall = time.Since(start)
	self, children = cpuTime(b, syscall.RUSAGE_SELF)-self, cpuTime(b, syscall.RUSAGE_CHILDREN)-children
	if err := os.RemoveAll(dir); err != nil { // so that both sides find the memory alike
		b.Fatal(err)
	}
	return wall, self, children
}

func cpuTime(b *testing.B, who int) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLineSplitter is the splitter alone, in 80-byte lines.
func BenchmarkLineSplitter(b *testing.B) {
	var chunk []byte
	for i := range readSize / 80 {
		chunk = append(chunk, producedLine("a", i, 80)...)
	}
	l := &lineSplitter{prefix: newStampedPrefix(Prefix{"[default0]:"})}
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		for p := chunk; len(p) > 0; {
			_, taken := l.feed(p)
			p = p[taken:]
		}
	}
}
