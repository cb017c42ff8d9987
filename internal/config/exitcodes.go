package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Reason is why the launcher ended, in one word: the reason= of its last line.
type Reason string

// The reasons that a launcher can have.
const (
	ReasonWorkerFailed Reason = "worker_failed" // a worker exited with a code of its own
	ReasonWorkerKilled Reason = "worker_killed" // a worker was killed by a signal
	ReasonUsage        Reason = "usage"         // bad input or surroundings; nothing was started
	ReasonRendezvous   Reason = "rendezvous"    // no rendezvous could be formed, or it was lost
	ReasonSignal       Reason = "signal"        // the launcher was told to stop
	ReasonStuck        Reason = "stuck"         // processes of the job outlive SIGKILL
	ReasonPreflight    Reason = "preflight"     // this machine is not fit for the job: a check failed before it joined, or came back
	ReasonFinished     Reason = "finished"      // the run id is that of a finished run; nothing was started
	ReasonOutput       Reason = "output"        // the job succeeded; output of it was lost, and there was no room to say so
	ReasonInternal     Reason = "internal"      // a defect of elasticrun
	// ReasonNothingStarted is the reason of the exit code 0 where the job has succeeded and this node had no part in it.
	ReasonNothingStarted Reason = "nothing_started"
)

// Reasons lists all reasons.
func Reasons() []Reason {
	return []Reason{
		ReasonWorkerFailed, ReasonWorkerKilled, ReasonUsage,
		ReasonRendezvous, ReasonSignal, ReasonStuck, ReasonPreflight, ReasonFinished, ReasonOutput, ReasonInternal, ReasonNothingStarted,
	}
}

// ExitCodeMap replaces exit codes. The zero value replaces none.
type ExitCodeMap struct {
	codes   map[int]int
	reasons map[Reason]int
}

// ParseExitCodeMap reads FROM=TO,..., where FROM is an exit code 1 to 255 or a
// reason and TO an exit code 0 to 255. Success cannot be mapped.
func ParseExitCodeMap(s string) (ExitCodeMap, error) {
	m := ExitCodeMap{codes: map[int]int{}, reasons: map[Reason]int{}}
	if strings.TrimSpace(s) == "" {
		return m, nil
	}
	for item := range strings.SplitSeq(s, ",") {
		from, to, found := strings.Cut(item, "=")
		from, to = strings.TrimSpace(from), strings.TrimSpace(to)
		if !found {
			return ExitCodeMap{}, fmt.Errorf("%q is not FROM=TO", item)
		}
		code, err := strconv.Atoi(to)
		if err != nil || code < 0 || code > 255 {
			return ExitCodeMap{}, fmt.Errorf("%q: the code behind = must be between 0 and 255", item)
		}
		if err := m.add(from, code); err != nil {
			return ExitCodeMap{}, fmt.Errorf("%q: %w", item, err)
		}
	}
	return m, nil
}

func (m ExitCodeMap) add(from string, to int) error {
	twice := errors.New(from + " is mapped twice")
	if code, err := strconv.Atoi(from); err == nil {
		if code < 1 || code > 255 {
			return errors.New("the code before = must be between 1 and 255")
		}
		if _, ok := m.codes[code]; ok {
			return twice
		}
		m.codes[code] = to
		return nil
	}
	if !slices.Contains(Reasons(), Reason(from)) {
		return fmt.Errorf("before = must stand a code or one of %s", reasonList())
	}
	if _, ok := m.reasons[Reason(from)]; ok {
		return twice
	}
	m.reasons[Reason(from)] = to
	return nil
}

func reasonList() string {
	words := make([]string, 0, len(Reasons()))
	for _, r := range Reasons() {
		words = append(words, string(r))
	}
	return strings.Join(words, ", ")
}

// Apply returns the code to exit with in place of code. A rule for the code
// itself goes before one for the reason.
func (m ExitCodeMap) Apply(code int, why Reason) int {
	if to, ok := m.codes[code]; ok {
		return to
	}
	if to, ok := m.reasons[why]; ok {
		return to
	}
	return code
}
