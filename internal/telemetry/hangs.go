package telemetry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/internal/hang"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/internal/stacks"
	"github.com/elasticrun/elasticrun/internal/status"
	"github.com/elasticrun/elasticrun/pkg/events"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/rdzv"
	"github.com/elasticrun/elasticrun/pkg/rdzv/elastic/rounds"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// hangs keeps what this node knows about the hangs of its job.
type hangs struct {
	auto      bool   // no timeout was configured
	action    string // --hang-action
	allStacks string // in words, where all stacks of the last hang are; only Examine uses it

	mu    sync.Mutex
	all   []report.Hang // the last report.MaxHangs ones
	shown string        // round, suspects and reason of the hang shown last; empty for none
	last  hang.Finding  // the last finding, of round, made at that time
	round int
	at    time.Time
}

// add keeps a hang.
func (h *hangs) add(found report.Hang) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, found)
	h.all = h.all[max(0, len(h.all)-report.MaxHangs):]
}

// isNew reports whether a hang differs from the one shown last, and remembers it.
func (h *hangs) isNew(who string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	isNew := h.shown != who
	h.shown = who
	return isNew
}

// compare compares a finding with the last one of the same round, and remembers it.
func (h *hangs) compare(f hang.Finding, round int, now time.Time) hang.Finding {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.round == round && !h.at.IsZero() {
		f = f.Compare(h.last, now.Sub(h.at))
	}
	h.last, h.round, h.at = f, round, now
	return f
}

// over records that the last hang is over. It returns in words for how long no worker made progress, or "" if no hang
// was open.
func (h *hangs) over(at time.Time) (hungFor string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shown, h.last, h.at = "", hang.Finding{}, time.Time{}
	if n := len(h.all); n > 0 && h.all[n-1].Over.IsZero() {
		last := &h.all[n-1]
		last.Over = report.Time{Time: at}
		quiet := time.Duration(last.Quiet * float64(time.Second))
		hungFor = seconds.Format((at.Sub(last.Time.Time) + quiet).Round(time.Second))
	}
	return hungFor
}

// list returns the hangs so far.
func (h *hangs) list() []report.Hang {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

// Hangs returns the hangs of the job so far.
func (t *Telemetry) Hangs() []report.Hang { return t.hangs.list() }

// look observes the workers of this node closely. It returns what they do, and adds the workers that exited with 0.
func (t *Telemetry) look(ctx context.Context, allThreads bool) []stacks.Worker {
	lives := t.liveness.Look(ctx)
	lines := t.observer.LastLines(ctx)
	workers := t.observer.Stacks(ctx, allThreads)
	for i := range workers {
		w := &workers[i]
		w.Life = nil
		if life, ok := lives[w.LocalRank]; ok {
			life.LastLine = lines[w.LocalRank]
			w.Life = &life
		}
	}
	s := t.tracker.Snapshot()
	for _, w := range s.Workers {
		if w.State == status.WorkerSucceeded {
			workers = append(workers, stacks.Worker{
				Rank: w.Rank, LocalRank: w.LocalRank, Host: s.Host, PID: w.PID, State: stacks.Exited,
			})
		}
	}
	return workers
}

// Examine judges from the nodes' replies whether the job hangs, and shows a new hang on the console. It is
// [elastic.Options.Examine].
func (t *Telemetry) Examine(ctx context.Context, round int, nodes []rounds.NodeStacks) rounds.HangFinding {
	var workers []stacks.Worker
	var silent []string
	for _, n := range nodes {
		replied, err := status.UnpackStacks(n.Stacks)
		if err != nil && !n.Gone {
			silent = append(silent, cmp.Or(n.Host, fmt.Sprintf("node rank %d", n.Rank)))
		}
		workers = append(workers, replied...)
	}
	f := t.hangs.compare(hang.Judge(workers, silent, t.hangs.auto), round, time.Now())
	found := rounds.HangFinding{
		Hang: f.Hang, Proof: f.Proof, Still: f.Still, AtWork: f.AtWork, Complete: f.Complete, Quiet: f.Quiet,
		SinceOutput: f.SinceOutput,
		Summary:     f.Summary(), Ranks: f.Odd,
	}
	if !f.Hang {
		t.log.Debug().Str("why", f.Why).Msg("no worker of the job shows signs of life, but it does not hang")
		return found
	}
	if t.hangs.isNew(fmt.Sprint(round, f.Odd, f.Reason)) {
		t.hangs.allStacks = t.showHang(ctx, f, round)
	}
	found.Failure = failureOf(f, round, t.hangs.allStacks)
	return found
}

// failureOf returns the failure of the worker that most likely caused a hang, or of the worker with the lowest rank if
// the cause is unknown. allStacks says where all stacks are; it may be empty.
func failureOf(f hang.Finding, round int, allStacks string) *rdzv.Failure {
	w := f.Workers[0]
	if len(f.Odd) > 0 {
		w, _ = f.Worker(f.Odd[0])
	}
	blamed := failure.Failure{
		Host: w.Host, Round: round, GlobalRank: w.Rank, LocalRank: w.LocalRank, PID: w.PID, ExitCode: 1,
		Kind: failure.Hang, Summary: report.Head(f.Summary(), report.MaxSummary),
		Text: report.Head(f.Evidence(allStacks), rdzv.MaxFailureText),
	}
	age := f.Quiet
	if w.Life != nil {
		age = w.Life.SinceSign()
	}
	return &rdzv.Failure{Failure: blamed, Grade: failure.Hang.Grade(), Age: age}
}

// showHang writes the stacks of a hang to the log folder, if there is one, and prints the hang on the console. It
// returns in words where all stacks are; empty if they are nowhere.
func (t *Telemetry) showHang(ctx context.Context, f hang.Finding, round int) (allStacks string) {
	now := time.Now()
	files, err := t.writeHangInTime(ctx, f, round, now)
	switch {
	case err != nil:
		t.log.Warn().Err(err).Msg("the stacks of the hang are not in the log folder")
	case len(files) > 0:
		allStacks = "all threads of all ranks: " + files[0]
	}
	t.recordHang(report.Hang{
		Time: report.Time{Time: now}, Round: round, Host: t.event("", now).Host, Files: files, Quiet: f.Quiet.Seconds(),
		Ranks: f.Odd, Summary: f.Summary(),
	})
	title, text := f.Brief(allStacks, t.hangs.nextStep(f.AtWork))
	t.show(true, title, text)
	return allStacks
}

// nextStep says what --hang-action does after a hang was found. atWork means that a child process of a worker is
// working.
func (h *hangs) nextStep(atWork bool) string {
	what := "the workers are restarted"
	switch rounds.HangAction(h.action) {
	case rounds.HangReport:
		return "the job goes on; elasticrun stacks shows where its workers are, elasticrun stop ends it"
	case rounds.HangRestart:
	case rounds.HangStop:
		what = "the job is ended"
	}
	when := "if a later look finds the same"
	if h.auto {
		when += " after 5 minutes of silence"
	}
	if atWork {
		when += ", and no process of a worker at work"
	}
	return fmt.Sprintf("%s, %s (--hang-action=%s)", when, what, h.action)
}

// writeTimeout limits how long a hang's report on the console waits for the log folder.
const writeTimeout = 5 * time.Second

// writeHangInTime is writeHang with a limit of writeTimeout, because the disk of the folder may not answer.
func (t *Telemetry) writeHangInTime(ctx context.Context, f hang.Finding, round int, at time.Time) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	var files []string
	err, written := inTime(ctx, func() (err error) {
		files, err = t.writeHang(f, round, at)
		return err
	})
	if !written {
		return nil, fmt.Errorf("write to %s: no answer in %s", t.launcher.LogDir, seconds.Format(writeTimeout))
	}
	return files, err
}

// writeHang writes a hang to the run's log folder and returns the paths of the text and of the JSON; none without a
// folder.
func (t *Telemetry) writeHang(f hang.Finding, round int, at time.Time) ([]string, error) {
	if t.launcher.LogDir == "" {
		return nil, nil
	}
	var base string
	for n := 1; ; n++ {
		base = filepath.Join(t.launcher.LogDir, fmt.Sprintf("hang_%d.%d", round, n))
		if _, err := os.Lstat(base + ".txt"); errors.Is(err, os.ErrNotExist) {
			break
		} else if err != nil {
			return nil, err
		}
	}
	data, err := json.MarshalIndent(f.Record(at), "", "  ")
	if err != nil {
		return nil, err
	}
	files := []string{base + ".txt", base + ".json"}
	for i, content := range [][]byte{[]byte(f.Text(at)), append(data, '\n')} {
		if err := os.WriteFile(files[i], content, 0o600); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// recordHang keeps a hang for the report, the event log and the status, and requests dumps from the flight recorders.
func (t *Telemetry) recordHang(h report.Hang) {
	h.Ranks = append([]int{}, h.Ranks...) // an empty list in JSON, not null
	t.hangs.add(h)
	go t.orderDumps() // the pipes may be on a blocked disk, and the caller must not wait
	e := t.event(events.KindHang, h.Time.Time)
	e.Summary, e.Ranks = report.Head(h.Summary, report.MaxSummary), h.Ranks
	t.sinks.Emit(e)
}

// newestSign names the worker of this node that has shown the newest sign of life, and that sign; empty for none.
func (t *Telemetry) newestSign() string {
	localRank, sign := t.liveness.Newest()
	if sign == "" {
		return ""
	}
	for _, w := range t.tracker.Snapshot().Workers {
		if w.LocalRank == localRank {
			return fmt.Sprintf("rank %d: %s", w.Rank, sign)
		}
	}
	return ""
}

// HangFound records a hang that another node found. f is nil when a worker of this node makes progress again after a
// hang. HangFound is [elastic.Options.HangFound].
func (t *Telemetry) HangFound(f *rounds.HangFound) {
	now := time.Now()
	if f == nil {
		since := t.hangs.over(now)
		t.sinks.Emit(t.event(events.KindHangOver, now))
		t.log.Warn().Str("sign", t.newestSign()).Str("hung_for", since).Msg("the workers make progress again")
		return
	}
	t.recordHang(report.Hang{
		Time: report.Time{Time: now}, Round: f.Look.Round, Host: f.Host, Quiet: f.Quiet.Seconds(), Ranks: f.Ranks,
		Summary: f.Summary,
	})
	t.log.Warn().Msgf("hang suspected: %s; the stacks of all ranks are on %s, and elasticrun stacks shows where they "+
		"are now", f.Summary, f.Host)
}
