package workerlog

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestMarkComesBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := Mark{
			At:        time.UnixMicro(rapid.Int64Range(0, 1<<60).Draw(rt, "at")),
			LocalRank: rapid.IntRange(0, 1<<20).Draw(rt, "rank"),
			Stream:    rapid.SampledFrom([]StreamSet{Stdout, Stderr}).Draw(rt, "std"),
			Bytes:     rapid.Int64Range(0, 1<<62).Draw(rt, "bytes"),
			Idle:      time.Duration(rapid.Int64Range(0, 1<<40).Draw(rt, "quiet")) * time.Microsecond,
			Piece:     rapid.IntRange(0, 1<<20).Draw(rt, "piece"),
		}
		if got, ok := ParseMark([]byte(m.String())); !ok || got != m {
			rt.Fatalf("%q came back as %+v, %v", m, got, ok)
		}
	})
}

func FuzzParseMark(f *testing.F) {
	for _, s := range []string{"", "# {}", "1 2 1 3", "1 2 1 3 quiet=4 piece=5", "1 2 1 3 later=6", "1 2 3 4", "-1 2 1 3", "1 2 1", "1 2 1 3 quiet"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, ok := ParseMark([]byte(s))
		if again, same := ParseMark([]byte(m.String())); ok && (!same || again != m) {
			t.Errorf("%q came back as %q", s, m)
		}
	})
}

func TestTimelineHeadComesBack(t *testing.T) {
	want := TimelineHead{RunID: "a \"b\"\n<c>", Round: 3, Host: "node0", NodeRank: 1, Base: 8, Workers: 8, Role: "trainer"}
	got, ok := ParseTimelineHead(want.String())
	if diff := cmp.Diff(want, got); diff != "" || !ok || strings.Contains(want.String(), "\n") {
		t.Errorf("%v (-want +got):\n%s", ok, diff)
	}
	if _, ok := ParseTimelineHead("1 2 1 3"); ok {
		t.Error("a mark was taken for a head")
	}
}

func TestPacer(t *testing.T) {
	p := pacer{localRank: 3, std: Stderr}
	start := time.UnixMicro(1_000_000)
	if _, due := p.end(0); due {
		t.Error("a stream that wrote nothing has an end")
	}
	var got []string
	var bytes int64
	for _, ms := range []int{0, 20, 90, 1_000, 1_050, 1_149, 1_249, 1_300, 60_000, 60_099} {
		if m, due := p.writes(start.Add(time.Duration(ms)*time.Millisecond), bytes); due {
			got = append(got, m.String())
		}
		bytes += 10
	}
	got = append(got, p.ended(2, bytes).String())
	m, _ := p.end(bytes)
	want := []string{
		"1000000 3 2 0",                  // the first
		"2000000 3 2 30 quiet=910000",    // after a pause
		"2249000 3 2 60 quiet=100000",    // a short one
		"61000000 3 2 80 quiet=58700000", // a long one
		"61099000 3 2 100 piece=2",
		"61099000 3 2 100",
	}
	if diff := cmp.Diff(want, append(got, m.String())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A stream that never pauses gets a mark a second, however much it writes.
func TestPacerBounds(t *testing.T) {
	p := pacer{}
	marks := 0
	for i := range 10_000 {
		if _, due := p.writes(time.UnixMicro(int64(i)*1000), int64(i)); due {
			marks++
		}
	}
	if marks != 10 {
		t.Errorf("%d marks in 10 s", marks)
	}
}

// One stream of the worker passes through the launcher; the worker writes the other one itself.
func TestTimelineOfStreams(t *testing.T) {
	dir := t.TempDir()
	attempt := &Attempt{dir: dir}
	head := TimelineHead{RunID: "job", Workers: 1}
	if err := attempt.CreateTimeline(head); err != nil {
		t.Fatal(err)
	}
	files, err := attempt.Files(0)
	if err != nil {
		t.Fatal(err)
	}
	tl := OpenTimeline(files.Timeline, func(err error) { t.Error(err) })
	screen := newFile(t)
	var streams []*Stream
	var workers []*os.File
	for i, out := range []Output{{File: files.Stdout, Rotation: Rotation{MaxSize: 8}}, {File: files.Stderr}} {
		s, err := OpenStream(out, NewConsole(screen, screen), StreamSet(i+1))
		if err != nil {
			t.Fatal(err)
		}
		s.WriteTimeline(tl, 0, StreamSet(i+1))
		fd, err := syscall.Dup(int(s.ChildFile().Fd()))
		if err != nil {
			t.Fatal(err)
		}
		worker := os.NewFile(uintptr(fd), "worker")
		streams, workers = append(streams, s), append(workers, worker)
	}
	tl.Start()
	for i, s := range streams {
		s.Start()
		write(t, workers[i], "one\ntwo\nthree\n")
		finish(t, s, workers[i])
	}
	tl.Close(t.Context())

	lines := strings.Split(strings.TrimSuffix(readFile(t, files.Timeline), "\n"), "\n")
	if got, ok := ParseTimelineHead(lines[0]); !ok || got != head {
		t.Errorf("head %q", lines[0])
	}
	marks := map[StreamSet][]int64{}
	piece := 0
	for _, line := range lines[1:] {
		m, ok := ParseMark([]byte(line))
		if !ok || time.Since(m.At).Abs() > time.Minute {
			t.Errorf("mark %q", line)
		}
		marks[m.Stream] = append(marks[m.Stream], m.Bytes)
		piece = max(piece, m.Piece)
	}
	if diff := cmp.Diff(map[StreamSet][]int64{Stdout: {0, 8, 14}, Stderr: {0, 14}}, marks); diff != "" || piece != 1 {
		t.Errorf("%d pieces, bytes of marks (-want +got):\n%s", piece, diff)
	}
}

// A file that does not grow is watched, not polled, and later writes are still seen.
func TestTimelineSeesFilesGrow(t *testing.T) {
	dir := t.TempDir()
	path, log := filepath.Join(dir, "timeline"), filepath.Join(dir, "log")
	writeFile(t, path)
	worker, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close()
	tl := OpenTimeline(path, func(err error) { t.Error(err) })
	tl.follow(log, 4, Stdout)
	tl.Start()
	rests := func() bool { return slices.Contains(tl.watch.WatchList(), log) }
	for i, text := range []string{"one", "three", "five"} {
		await(t, "rest", rests)
		write(t, worker, text)
		want := []string{" 4 1 0\n", " 4 1 3 quiet=", " 4 1 8 quiet="}[i]
		await(t, want, func() bool { return strings.Contains(readFile(t, path), want) })
	}
	tl.Close(t.Context())
	if got := readFile(t, path); !strings.HasSuffix(got, " 4 1 12\n") {
		t.Errorf("the timeline ends in %q", got)
	}
}

// A file that grows at every check gets a mark a second, and no mark records a pause.
func TestTimelineOfFilesThatGrow(t *testing.T) {
	dir := t.TempDir()
	path, log := filepath.Join(dir, "timeline"), filepath.Join(dir, "log")
	writeFile(t, path)
	tl := OpenTimeline(path, func(err error) { t.Error(err) })
	defer tl.Discard()
	f := &watchedFile{pace: pacer{std: Stdout}}
	for i := range 25 {
		if err := os.WriteFile(log, make([]byte, 10*(i+1)), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.UnixMicro(0).Add(time.Duration(i) * checkInterval)
		if err := os.Chtimes(log, at, at); err != nil {
			t.Fatal(err)
		}
		if f.growing = tl.grew(log, f); !f.growing {
			t.Fatal("it grew")
		}
	}
	want := "x0 0 1 0\n1080000 0 1 90\n2160000 0 1 180\n"
	if diff := cmp.Diff(want, readFile(t, path)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// await polls until a condition holds that no event reports.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for timeout := time.After(2 * time.Minute); !so(); {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// A timeline that cannot be written or watched costs the job nothing but one warning.
func TestTimelineWithoutDisk(t *testing.T) {
	dir := t.TempDir()
	if tl := OpenTimeline(filepath.Join(dir, "missing"), func(err error) { t.Error(err) }); tl != nil {
		t.Error("a timeline without a file")
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	log := filepath.Join(dir, "log")
	writeFile(t, log)
	var warnings []string
	tl := OpenTimeline("/dev/full", func(err error) { warnings = append(warnings, err.Error()) })
	tl.follow(log, 0, Stdout)
	tl.follow(filepath.Join(dir, "gone"), 1, Stdout)
	tl.Start()
	for range 2000 { // more than it has room for
		tl.put(Mark{Stream: Stdout}, true)
	}
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	tl.Close(t.Context())
	if len(warnings) != 1 || !strings.Contains(warnings[0], "no space left") {
		t.Errorf("warnings %q", warnings)
	}
	var none *Timeline // and no timeline at all is fine
	none.put(Mark{}, true)
	none.Start()
	none.Close(t.Context())
	none.Discard()
}
