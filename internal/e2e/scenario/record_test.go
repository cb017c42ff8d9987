package scenario

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// line is one line of testdata/workers/ddp_train.py's record.
type line struct {
	Event   string  `json:"event"`
	Time    float64 `json:"time"` // seconds of the clock that all hosts share
	Round   int     `json:"round"`
	Restart int     `json:"restart"`
	World   int     `json:"world"`
	Rank    int     `json:"rank"`
	Local   int     `json:"local"`
	Group   int     `json:"group"`
	Host    string  `json:"host"`
	PID     int     `json:"pid"`
	Step    int     `json:"step"`
	Loss    float64 `json:"loss"`
	Other   int     `json:"other"`  // of an overlap: the other round
	Holder  int     `json:"holder"` // of an overlap: a worker of the other round
}

// readRecord returns what all workers have written so far, sorted by time. A worker can have left a partial line.
func readRecord(dir string) ([]line, error) { return readRecordAfter(dir, -1) }

// readRecordAfter is readRecord for the rounds after the given one.
func readRecordAfter(dir string, round int) ([]line, error) {
	files, err := filepath.Glob(filepath.Join(dir, "log", "*.jsonl"))
	if err != nil {
		return nil, err
	}
	var lines []line
	for _, name := range files {
		number, _, _ := strings.Cut(filepath.Base(name), ".")
		if n, err := strconv.Atoi(number); err != nil || n <= round {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		for in := bufio.NewScanner(f); in.Scan(); {
			var l line
			if json.Unmarshal(in.Bytes(), &l) == nil {
				lines = append(lines, l)
			}
		}
		_ = f.Close()
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.Time, b.Time) })
	return lines, nil
}

// round is what the workers of one round have written.
type round struct {
	number int
	lines  []line // sorted by time
	steps  []line // of the worker that made the most
}

// rounds groups lines by their rounds.
func rounds(lines []line) []round {
	byNumber := map[int][]line{}
	for _, l := range lines {
		byNumber[l.Round] = append(byNumber[l.Round], l)
	}
	var all []round
	for _, n := range slices.Sorted(maps.Keys(byNumber)) {
		r := round{number: n, lines: byNumber[n]}
		byRank := map[int][]line{}
		for _, l := range r.lines {
			if l.Event == "step" {
				byRank[l.Rank] = append(byRank[l.Rank], l)
				if len(byRank[l.Rank]) > len(r.steps) {
					r.steps = byRank[l.Rank]
				}
			}
		}
		all = append(all, r)
	}
	return all
}

// String is for the reader of a failed test.
func (r round) String() string {
	first, last := r.lines[0], r.lines[len(r.lines)-1]
	var hosts []string
	for _, l := range r.lines {
		if l.Event == "start" {
			hosts = append(hosts, fmt.Sprintf("%s:%d", l.Host, l.Rank))
		}
	}
	text := fmt.Sprintf("round %d from %.3f to %.3f: world %d, restart %d, workers %s", r.number, first.Time, last.Time,
		first.World, first.Restart, strings.Join(hosts, " "))
	for _, l := range r.lines {
		if l.Event == "overlap" {
			text += fmt.Sprintf(", rank %d on %s found round %d alive", l.Rank, l.Host, l.Other)
		}
	}
	if n := len(r.steps); n > 0 {
		text += fmt.Sprintf(", steps %d to %d", r.steps[0].Step, r.steps[n-1].Step)
	}
	return text
}

// expected is what a record must show.
type expected struct {
	worlds   []int     // world sizes of the rounds that made a step
	restarts int       // restarts charged to the job at the end
	losses   []float64 // losses[s] is the loss of step s in an undisturbed run
	steps    int       // number of steps, or 0 for any number
}

// check returns one line for each violation in a record.
func check(lines []line, want expected) []string {
	var bad []string
	complain := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	all := rounds(lines)
	var worlds []int
	restart, step := 0, 0
	for i, r := range all {
		bad = append(bad, checkRound(r, want.losses)...)
		if i > 0 {
			before := all[i-1].lines
			if last := before[len(before)-1]; last.Time >= r.lines[0].Time {
				complain("round %d began at %.3f on %s, before the end of round %d at %.3f on %s", r.number, r.lines[0].Time,
					r.lines[0].Host, all[i-1].number, last.Time, last.Host)
			}
		}
		if now := r.lines[0].Restart; now < restart {
			complain("round %d: restart count %d after %d", r.number, now, restart)
		} else {
			restart = now
		}
		if len(r.steps) == 0 {
			continue
		}
		worlds = append(worlds, r.lines[0].World)
		// Rank 0 records a step before it saves the step, so the last step can be made twice.
		if first := r.steps[0].Step; first != step && first != step+1 || first == 0 {
			complain("round %d goes on with step %d after step %d", r.number, first, step)
		}
		step = r.steps[len(r.steps)-1].Step
	}
	if !slices.Equal(worlds, want.worlds) {
		complain("world sizes %v, want %v", worlds, want.worlds)
	}
	if restart != want.restarts {
		complain("%d restarts, want %d", restart, want.restarts)
	}
	if want.steps > 0 && step != want.steps {
		complain("the last step is %d, want %d", step, want.steps)
	}
	return bad
}

// checkRound returns the violations within a round.
func checkRound(r round, losses []float64) []string {
	var bad []string
	complain := func(format string, args ...any) {
		bad = append(bad, fmt.Sprintf("round %d: ", r.number)+fmt.Sprintf(format, args...))
	}
	workers := map[int]line{} // by rank
	groups := map[int]string{}
	steps := map[int]int{} // last step of each rank
	for _, l := range r.lines {
		if l.World != r.lines[0].World || l.Restart != r.lines[0].Restart {
			complain("rank %d has world size %d and restart count %d, rank %d has %d and %d", l.Rank, l.World, l.Restart,
				r.lines[0].Rank, r.lines[0].World, r.lines[0].Restart)
		}
		if other, ok := workers[l.Rank]; ok && other.PID != l.PID {
			complain("rank %d is on %s and on %s", l.Rank, other.Host, l.Host)
		}
		workers[l.Rank] = l
		if other, ok := groups[l.Group]; ok && other != l.Host {
			complain("node rank %d is on %s and on %s", l.Group, other, l.Host)
		}
		groups[l.Group] = l.Host
		switch l.Event {
		case "overlap":
			complain("rank %d on %s found pid %d of round %d alive", l.Rank, l.Host, l.Holder, l.Other)
		case "step":
			if before, ok := steps[l.Rank]; ok && l.Step != before+1 || l.Step != r.steps[0].Step && !ok {
				complain("rank %d made step %d after step %d", l.Rank, l.Step, before)
			}
			steps[l.Rank] = l.Step
			if l.Step >= len(losses) || math.Abs(l.Loss-losses[l.Step]) > 1e-9 {
				complain("rank %d has loss %v in step %d, unlike an undisturbed run", l.Rank, l.Loss, l.Step)
			}
		}
	}
	if len(r.steps) > 0 && len(workers) != r.lines[0].World {
		complain("%d workers, want %d", len(workers), r.lines[0].World)
	}
	for rank := range workers {
		if rank < 0 || rank >= r.lines[0].World {
			complain("rank %d of %d", rank, r.lines[0].World)
		}
	}
	return bad
}
