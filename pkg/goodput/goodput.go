// Package goodput describes how the time of a job's workers was used.
//
// It holds values only. pkg/rdzv/elastic/rounds fills them; events, reports and status show them. docs/goodput.md says
// what each part is.
package goodput

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Goodput divides the time of a job's workers, in worker-seconds: the seconds of each node times its number of workers.
// The parts do not overlap, and their sum is all known time.
type Goodput struct {
	// Startup is the time from the decision of a round to its first step. Without known steps it is 0.
	Startup float64 `json:"startup"`
	// Running is the time in which the workers ran, without Startup and Lost.
	Running float64 `json:"running"`
	// Lost is the time of steps that were done again after a restart.
	Lost float64 `json:"lost"`
	// Detection is the time from the first failure of a round until all nodes had the order to stop.
	Detection float64 `json:"detection"`
	// Standstill is the time from that order until the next round was decided, or the job ended.
	Standstill float64 `json:"standstill"`
	// Preemption is the time from the order to save, in a preemption, until all workers have ended.
	Preemption float64 `json:"preemption"`
	// Idle is the time of nodes that were in no round, and of workers that were done before the others.
	Idle float64 `json:"idle"`
	// Steps says that steps of the workers are known, so Startup and Lost are known and Running is training.
	Steps bool `json:"steps"`
	// LostUnknown says that Running may include lost time, because the numbers of steps went down, or the last steps of a
	// round are not known.
	LostUnknown bool `json:"lost_unknown,omitempty"`
}

// Part is one part of a Goodput.
type Part struct {
	Name    string  // as in JSON
	Words   string  // for people
	Seconds float64 // worker-seconds
}

// Parts returns all parts, Running first.
func (g Goodput) Parts() []Part {
	return []Part{
		{"running", g.word(), g.Running},
		{"startup", "start-up", g.Startup},
		{"lost", "lost work", g.Lost},
		{"detection", "detection", g.Detection},
		{"standstill", "standstill", g.Standstill},
		{"preemption", "preemption", g.Preemption},
		{"idle", "idle", g.Idle},
	}
}

// word names Running for people.
func (g Goodput) word() string {
	if g.Steps && !g.LostUnknown {
		return "training"
	}
	return "running"
}

// Total returns the sum of all parts.
func (g Goodput) Total() (sum float64) {
	for _, p := range g.Parts() {
		sum += p.Seconds
	}
	return sum
}

// Share returns the share of Running in all, from 0 to 1; 0 if nothing is known.
func (g Goodput) Share() float64 {
	if total := g.Total(); total > 0 {
		return g.Running / total
	}
	return 0
}

// MarshalJSON implements json.Marshaler. It adds the ratio: Share in four decimals.
func (g Goodput) MarshalJSON() ([]byte, error) {
	type plain Goodput
	return json.Marshal(struct {
		Ratio float64 `json:"ratio"`
		plain
	}{math.Floor(g.Share()*10000+1e-6) / 10000, plain(g)})
}

// Rounded returns g in whole milliseconds.
func (g Goodput) Rounded() Goodput {
	for _, part := range []*float64{
		&g.Startup, &g.Running, &g.Lost, &g.Detection, &g.Standstill, &g.Preemption, &g.Idle,
	} {
		*part = math.Round(*part*1000) / 1000
	}
	return g
}

// String returns the share for people, such as "97.1 % training"; empty if nothing is known. Without known steps, or if
// lost steps may be missing, it says "running".
func (g Goodput) String() string {
	if g.Total() <= 0 {
		return ""
	}
	// Rounded down, so that a job that has lost time never shows 100 %.
	return fmt.Sprintf("%.1f %% %s", math.Floor(g.Share()*1000+1e-6)/10, g.word())
}

// Details is String with the other parts, such as "97.1 % training, 1.9 % lost work, 1.0 % start-up"; those below 0.1 %
// are left out.
func (g Goodput) Details() string {
	text, total := g.String(), g.Total()
	others := g.Parts()[1:]
	slices.SortStableFunc(others, func(a, b Part) int { return cmp.Compare(b.Seconds, a.Seconds) })
	for _, p := range others {
		if share := 100 * p.Seconds / total; share >= 0.1 {
			text += fmt.Sprintf(", %.1f %% %s", share, p.Words)
		}
	}
	return text
}
