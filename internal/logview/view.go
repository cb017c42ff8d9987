package logview

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// DefaultPrefix is the default template of line prefixes.
const DefaultPrefix = "${time} [${rank}] "

// Options say which part of a run is shown. The zero value shows everything.
type Options struct {
	// Ranks and LocalRanks select workers; nil selects all. Ranks has ranges of global ranks, LocalRanks of local
	// ones.
	Ranks, LocalRanks workerlog.RankSet
	// Stream selects the streams. NoStreams means both.
	Stream workerlog.StreamSet
	// Pattern must match a line for it to be shown. Nil matches all lines.
	Pattern *regexp.Regexp
	// Attempt is a number of restarts, or the name of an attempt, such as 0.r1. Empty means all attempts.
	Attempt string
	// Tail is how many of the lines that exist at the start are shown. 0 means all.
	Tail int
	// Prefix is the template of line prefixes; see [workerlog.LinePrefix], and ${stream}. Empty means no prefix, and no
	// boundaries between attempts.
	Prefix string
	// Terminal says that a terminal shows the lines. Then control characters, other than colors, are shown as text.
	Terminal bool
	// Follow continues to show new lines until Ended is closed or the context ends.
	Follow bool
	// Ended is closed when the run has ended. Nil means never.
	Ended <-chan struct{}
	// Found is called once there is a log to show, before its first line. It may be nil.
	Found func()
	// Note is called with a message for the user: once for each attempt without a timeline, and once if a run that is
	// followed has no log to show yet. It may be nil.
	Note func(text string)
}

// View shows the logs of one run. Only one goroutine may use it.
type View struct {
	opts Options
	run  string
	out  *bufio.Writer

	current string // the attempt that is open; empty: none
	head    workerlog.TimelineHead
	known   bool      // head was read from its timeline
	noted   bool      // Note was called for it
	streams []*stream // its streams, by rank, stdout first
	matched bool      // a stream was shown
	silent  bool      // noteNoLog was called for the run
	begins  bool      // it has shown no line yet, and a boundary comes before its first
	held    []shown   // the last lines, at most 2*Tail, until live
	live    bool      // lines are written at once
}

// shown is one line as it is shown, and the boundary before it; empty for none.
type shown struct{ boundary, text string }

// New makes a view of the run in folder run, which writes to out.
func New(run string, out io.Writer, opts Options) *View {
	return &View{opts: opts, run: run, out: bufio.NewWriterSize(out, readSize), live: opts.Tail == 0}
}

// ErrNothing says that a run has no log that the options select.
var ErrNothing = errors.New("no log")

// Run shows the logs. If it follows, it returns when the run has ended. It returns nil if the reader of out has gone,
// or if ctx ends while it follows. It returns [ErrNothing] if nothing could be shown.
func (v *View) Run(ctx context.Context) error {
	defer v.closeAttempt()
	var changes *changes
	if v.opts.Follow {
		var err error
		if changes, err = watchChanges(v.run); err != nil {
			return err
		}
		defer changes.close()
	}
	err := v.show(ctx, changes)
	if err == nil {
		err = v.flush()
	}
	switch {
	case errors.Is(err, syscall.EPIPE):
		return nil
	case err == nil && !v.matched && ctx.Err() == nil:
		return fmt.Errorf("%w in %s: %s", ErrNothing, v.run, v.missing())
	}
	return err
}

// missing says why there is nothing to show.
func (v *View) missing() string {
	if v.opts.Ranks != nil || v.opts.LocalRanks != nil || v.opts.Stream != workerlog.NoStreams || v.opts.Attempt != "" {
		return "none of its logs has the requested rank, stream or attempt"
	}
	return "its workers' output went only to the console; keep it with --redirects or --tee"
}

// show shows the attempts in order. If it follows it continues until the run ends.
func (v *View) show(ctx context.Context, changes *changes) error {
	done := 0
	for {
		ended := !v.opts.Follow || isClosed(v.opts.Ended) // read before the attempts, so that nothing is missed
		grown := changes.grown()
		attempts := v.attempts()
		for ; done < len(attempts); done++ {
			final := ended || done < len(attempts)-1
			if v.current != attempts[done].path {
				v.begins = done > 0 && v.opts.Prefix != ""
			}
			if err := v.showAttempt(attempts[done], final, grown, changes); err != nil {
				return err
			}
			if !final {
				break
			}
			v.closeAttempt()
		}
		if ended {
			return nil
		}
		if err := v.flush(); err != nil {
			return err
		}
		if len(attempts) > 0 && !v.matched {
			v.noteNoLog()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-v.opts.Ended:
		case <-changes.seen:
		}
	}
}

// noteNoLog says once that the workers of a run that is followed have started, but that there is nothing to show.
func (v *View) noteNoLog() {
	if !v.silent && v.opts.Note != nil {
		v.opts.Note(fmt.Sprintf("%v so far in %s: %s; waiting for the run's end", ErrNothing, v.run, v.missing()))
	}
	v.silent = true
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// attempts lists the selected attempts.
func (v *View) attempts() []attempt {
	return slices.DeleteFunc(attemptsIn(v.run), func(a attempt) bool {
		return v.opts.Attempt != "" && v.opts.Attempt != a.name() && v.opts.Attempt != strconv.Itoa(a.restarts)
	})
}

// showAttempt shows the new lines of an attempt. final says that no more will follow, grown that there may be new
// files.
func (v *View) showAttempt(a attempt, final, grown bool, changes *changes) error {
	if v.current != a.path || grown {
		if err := changes.watch(a.path); err != nil {
			return err
		}
		if err := v.openStreams(a, changes); err != nil {
			return err
		}
	}
	for _, s := range v.streams {
		s.final = final
	}
	return merge(v.streams, v.emit)
}

// openStreams opens the selected streams of an attempt that are not open yet.
func (v *View) openStreams(a attempt, changes *changes) error {
	v.current = a.path
	folders, _ := os.ReadDir(a.path)
	for _, folder := range folders {
		rank, err := strconv.Atoi(folder.Name())
		if err != nil || !folder.IsDir() {
			continue
		}
		dir := filepath.Join(a.path, folder.Name())
		if err := changes.watch(dir); err != nil {
			return err
		}
		for std, name := range map[workerlog.StreamSet]string{
			workerlog.Stdout: "stdout.log", workerlog.Stderr: "stderr.log",
		} {
			if err := v.openStream(a, filepath.Join(dir, name), rank, std); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(v.streams, func(a, b *stream) int {
		return cmp.Or(cmp.Compare(a.localRank, b.localRank), cmp.Compare(a.std, b.std))
	})
	return nil
}

// readHead reads the head of the attempt's timeline, which exists before the first log file.
func (v *View) readHead(a attempt) {
	if v.known {
		return
	}
	if v.head, v.known = readHead(a.path); !v.known && !v.noted && v.opts.Note != nil {
		v.opts.Note(fmt.Sprintf("%s has no timeline: its lines have no time and are shown file by file", a.path))
	}
	v.noted = true
}

// wants reports whether a worker is selected.
func (v *View) wants(rank int) bool {
	w := workerlog.Ranks{Local: rank, Global: v.head.Base + rank}
	return v.opts.LocalRanks.Has(w) && (v.opts.Ranks == nil || v.known && v.opts.Ranks.Has(w))
}

// openStream opens one stream, if it is selected and has a log.
func (v *View) openStream(a attempt, path string, rank int, std workerlog.StreamSet) error {
	isOpen := slices.ContainsFunc(v.streams, func(s *stream) bool { return s.path == path })
	if isOpen || v.opts.Stream != workerlog.NoStreams && v.opts.Stream != std {
		return nil
	}
	dir, name := filepath.Split(path)
	if matches, _ := fs.Glob(os.DirFS(dir), name+"*"); len(matches) == 0 {
		return nil
	}
	if v.readHead(a); !v.wants(rank) {
		return nil
	}
	s := &stream{path: path, localRank: rank, std: std}
	timeline, err := openLog(filepath.Join(a.path, workerlog.TimelineName))
	switch {
	case err == nil:
		s.timeline = timeline
		s.clock = newClock(timeline, rank, std)
	case ignoreMissing(err) != nil:
		return err
	default:
		s.clock = newClock(nil, rank, std)
	}
	if v.opts.Prefix != "" {
		s.prefix = workerlog.LinePrefix(v.opts.Prefix, workerlog.PrefixVars{
			Role: cmp.Or(v.head.Role, "default"), LocalRank: rank, Rank: v.head.Base + rank,
			NodeRank: v.head.NodeRank, Hostname: v.head.Host, Stream: std.String(),
		})
	}
	v.streams = append(v.streams, s)
	if !v.matched && v.opts.Found != nil {
		v.opts.Found()
	}
	v.matched = true
	return nil
}

// readHead reads the head of an attempt's timeline.
func readHead(path string) (workerlog.TimelineHead, bool) {
	file, err := openLog(filepath.Join(path, workerlog.TimelineName))
	if err != nil {
		return workerlog.TimelineHead{}, false
	}
	defer file.Close()
	first, err := bufio.NewReader(io.LimitReader(file, readSize)).ReadString('\n')
	if err != nil {
		return workerlog.TimelineHead{}, false
	}
	return workerlog.ParseTimelineHead(strings.TrimSuffix(first, "\n"))
}

func (v *View) closeAttempt() {
	for _, s := range v.streams {
		s.close()
	}
	v.streams, v.current, v.known, v.noted = nil, "", false, false
}

// unknownTime replaces ${time} if the time is not known.
const unknownTime = "--:--:--.---"

// emit shows one line, if it is selected.
func (v *View) emit(s *stream, l line) error {
	if v.opts.Pattern != nil && !v.opts.Pattern.Match(l.text) {
		return nil
	}
	prefix := strings.Join(s.prefix, unknownTime)
	if !l.at.IsZero() {
		prefix = s.prefix.At(l.at)
	}
	boundary := ""
	if v.begins {
		v.begins, boundary = false, v.boundary()
	}
	if !v.live {
		v.hold(shown{boundary, prefix + string(l.text)})
		return nil
	}
	return v.print(boundary, prefix, l.text)
}

// boundary returns the line between the attempt that is open and the one before.
func (v *View) boundary() string {
	text := "--- attempt " + strings.TrimPrefix(filepath.Base(v.current), attemptPrefix)
	if v.head.After != "" {
		text += ", " + printable.Line(v.head.After) // a worker's words may be in it
	}
	return text + " ---\n"
}

// print writes a line. The boundary, which includes its newline, comes before the line.
func (v *View) print(boundary, prefix string, text []byte) error {
	text = bytes.TrimSuffix(text, []byte{'\r'})
	if v.opts.Terminal {
		prefix, text = "", forTerminal(append([]byte(prefix), text...))
	}
	_, err := v.out.WriteString(boundary + prefix)
	if err == nil {
		_, err = v.out.Write(text)
	}
	if err == nil {
		err = v.out.WriteByte('\n')
	}
	return err
}

// hold keeps the last lines.
func (v *View) hold(line shown) {
	if len(v.held) == 2*v.opts.Tail {
		v.held = append(v.held[:0], v.held[v.opts.Tail:]...)
	}
	v.held = append(v.held, line)
}

// flush writes the held lines, and the buffer.
func (v *View) flush() error {
	for _, line := range v.held[max(0, len(v.held)-v.opts.Tail):] {
		if err := v.print(line.boundary, "", []byte(line.text)); err != nil {
			return err
		}
	}
	v.held, v.live = nil, true
	return v.out.Flush()
}
