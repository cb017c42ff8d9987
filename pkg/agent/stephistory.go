package agent

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

const (
	// minStepInterval is the shortest time between two updates of a stepHistory. The interval grows with the round.
	minStepInterval = 250 * time.Millisecond
	// minStepReport is the shortest time between two reports of steps. That time grows to a quarter of the round's age.
	minStepReport = 10 * time.Second
	// fileClockTick bounds by how much the kernel's coarse clock dates a write too early.
	fileClockTick = 10 * time.Millisecond
)

// stepHistory keeps some of the steps of a round's workers, with their times.
type stepHistory struct {
	sources []stepSource
	began   time.Time // when the workers were started

	mu       sync.Mutex
	steps    rdzv.Steps
	lastBeat map[string]int64 // the last step in each heartbeat file
}

// stepSource is where the steps of one worker are found: in its output, or else in its heartbeat file.
type stepSource struct {
	finder    *stepFinder // nil without a pattern
	heartbeat string      // empty for none
}

// shownSteps is what is known of one worker's steps. A heartbeat file has only one step, which is first and last.
type shownSteps struct {
	first, last rdzv.StepMark
	gap         int64
	fell        bool
}

// latest returns what is known at a time; ok is false before the first step.
func (s stepSource) latest(began, now time.Time) (shown shownSteps, ok bool) {
	if f := s.finder; f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.hasFound() {
			return shownSteps{f.first, f.step, f.gap, f.fell}, true
		}
	}
	if s.heartbeat == "" {
		return shown, false
	}
	step, ok := readHeartbeat(s.heartbeat, began, now)
	return shownSteps{first: step, last: step}, ok
}

// readHeartbeat reads the step in a heartbeat file. The time of the step is that of the file. ok is false if the file
// has no step or was last written before since. now has a monotonic clock reading.
func readHeartbeat(path string, since, now time.Time) (step rdzv.StepMark, ok bool) {
	info, err := os.Stat(path)
	if err != nil || info.ModTime().Before(since.Round(0).Add(-fileClockTick)) { // a user's own file may be older
		return step, false
	}
	data, _ := readSmall(path, maxHeartbeat)
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	age := max(0, now.Round(0).Sub(info.ModTime())) // by the wall clock, as the file's time
	at := now.Add(-age)
	if at.Before(since) { // the wall clock was set
		at = since
	}
	return rdzv.StepMark{Step: n, At: at}, err == nil
}

// update reads the workers' steps, adds the newest one and returns a copy of the history.
func (h *stepHistory) update(now time.Time) rdzv.Steps {
	h.mu.Lock()
	defer h.mu.Unlock()
	var first, last rdzv.StepMark
	found := false
	for _, s := range h.sources {
		one, ok := s.latest(h.began, now)
		if !ok {
			continue
		}
		if !found || one.first.At.Before(first.At) {
			first = one.first
		}
		if !found || one.last.Step > last.Step || one.last.Step == last.Step && one.last.At.Before(last.At) {
			last = one.last
		}
		found = true
		if one.gap > 0 && (h.steps.Gap == 0 || one.gap < h.steps.Gap) {
			h.steps.Gap = one.gap
		}
		before, known := h.lastBeat[s.heartbeat]
		h.steps.Fell = h.steps.Fell || one.fell || s.finder == nil && known && one.last.Step < before
		if h.lastBeat == nil {
			h.lastBeat = map[string]int64{}
		}
		h.lastBeat[s.heartbeat] = one.last.Step
	}
	if found {
		h.add(first, last)
	}
	s := h.steps
	s.Marks = slices.Clone(s.Marks)
	return s
}

// add adds the last step, and before it the first one to an empty history. It thins a history that is too long. The
// streams of the workers are read side by side, so the last step may bear an earlier time than the newest mark: then it
// gets the time of that mark.
func (h *stepHistory) add(first, last rdzv.StepMark) {
	marks := &h.steps.Marks
	if len(*marks) == 0 {
		*marks = append(*marks, first)
	}
	if newest := (*marks)[len(*marks)-1]; last.Step > newest.Step {
		if last.At.Before(newest.At) {
			last.At = newest.At
		}
		*marks = append(*marks, last)
	}
	if n := len(*marks); n > rdzv.MaxSteps { // keep every second one and the last
		thin := (*marks)[:0]
		for i, m := range *marks {
			if i%2 == 0 || i == n-1 {
				thin = append(thin, m)
			}
		}
		*marks = thin
	}
}

// watchSteps reports the steps of the workers while the group runs. first receives the first step. stop ends the watch.
func (a *Agent) watchSteps(ctx context.Context) (first <-chan rdzv.StepMark, stop func()) {
	h := a.steps
	if h == nil {
		return nil, func() {}
	}
	shown := make(chan rdzv.StepMark, 1)
	return shown, inBackground(ctx, func(ctx context.Context) {
		if !a.awaitStep(ctx, h) {
			return
		}
		s := h.update(time.Now())
		shown <- s.Marks[0]
		a.opts.Rendezvous.Stepped(s)
		h.follow(ctx, a.opts.Rendezvous.Stepped)
	})
}

// follow updates the history from time to time, and reports it less often, until ctx ends.
func (h *stepHistory) follow(ctx context.Context, report func(rdzv.Steps)) {
	timer := time.NewTimer(minStepInterval)
	defer timer.Stop()
	for reported := time.Now(); ; {
		var now time.Time
		select {
		case now = <-timer.C:
		case <-ctx.Done():
			return
		}
		s, age := h.update(now), now.Sub(h.began)
		if now.Sub(reported) >= max(minStepReport, age/4) {
			report(s)
			reported = now
		}
		timer.Reset(max(minStepInterval, age/rdzv.MaxSteps))
	}
}

// awaitStep waits for the first step of any worker. It reports false if ctx ends first.
func (a *Agent) awaitStep(ctx context.Context, h *stepHistory) bool {
	var waiting sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer waiting.Wait()
	defer cancel()
	found := h.awaitFinders(ctx, &waiting)
	var watch FileWatch
	defer func() {
		if watch != nil {
			a.closing.Go(watch.Close)
		}
	}()
	beats, begin := a.heartbeats(h)
	var written <-chan string
	var poll <-chan time.Time // nil while every new step is notified
	for {
		select {
		case <-found:
			return true
		case <-begin:
			begin = nil
			var err error
			if watch, err = a.opts.ErrorFiles.Watch(beats); err != nil {
				a.log.Debug().Err(err).Msg("cannot watch heartbeat files: they are read once a second")
				poll = time.Tick(time.Second)
				continue
			}
			written = watch.Written()
		case path := <-written:
			if _, ok := readHeartbeat(path, h.began, time.Now()); ok {
				return true
			}
			poll = time.Tick(time.Second) // not a step, or an old file; the watch notifies only once
		case now := <-poll:
			if s := h.update(now); len(s.Marks) > 0 {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// awaitFinders returns a channel that receives when a finder has found a step. It counts its goroutines, which end with
// ctx, in waiting.
func (h *stepHistory) awaitFinders(ctx context.Context, waiting *sync.WaitGroup) <-chan struct{} {
	found := make(chan struct{}, len(h.sources))
	for _, s := range h.sources {
		if s.finder == nil {
			continue
		}
		waiting.Go(func() {
			select {
			case <-s.finder.found:
				found <- struct{}{}
			case <-ctx.Done():
			}
		})
	}
	return found
}

// heartbeats returns the heartbeat files of the workers, and a channel that receives when to begin to watch them; nil
// for never. The first step of a round shows how much work the earlier rounds have lost. So the watch begins at once if
// earlier rounds had steps, and early if they may have had some.
func (a *Agent) heartbeats(h *stepHistory) (files []string, begin <-chan time.Time) {
	for _, s := range h.sources {
		if s.heartbeat != "" {
			files = append(files, s.heartbeat)
		}
	}
	if len(files) == 0 || a.opts.ErrorFiles == nil {
		return nil, nil
	}
	delay := watchDelay
	if used := a.round.Used; used != nil {
		delay = watchDelay / 10
		if used.Steps {
			delay = 0
		}
	}
	return files, time.After(delay)
}

// reportSteps reports the steps after all workers have succeeded.
func (a *Agent) reportSteps() {
	if a.steps == nil {
		return
	}
	s := a.steps.update(time.Now())
	a.warnWithoutSteps(s)
	a.warnFell(s)
	if len(s.Marks) > 0 {
		a.opts.Rendezvous.Stepped(s)
	}
}

// warnFell warns once that steps have gone down: then they do not measure progress.
func (a *Agent) warnFell(s rdzv.Steps) {
	if s.Fell && !a.warnedFell {
		a.warnedFell = true
		a.log.Warn().Msg("the steps of a worker have gone down, as if each epoch counted from 0: they do not measure " +
			"progress, so lost work is not known")
	}
}

// warnWithoutSteps warns of a pattern that has found no step until the workers succeeded. Only the first node warns,
// because often only its workers print steps.
func (a *Agent) warnWithoutSteps(s rdzv.Steps) {
	if a.opts.StepPattern == nil || a.round.Rank != 0 || len(s.Marks) > 0 {
		return
	}
	a.log.Warn().Str("pattern", a.opts.StepPattern.String()).Msg("--step-pattern has found no step: it must match a " +
		"line of the output, with the number in parentheses, as in 'step (\\d+)'")
}
