package exitcode

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Reason is why the launcher exited, in one word: the reason= of its last line.
type Reason string

// The reasons.
const (
	ReasonWorkerFailed Reason = "worker_failed" // a worker exited with a code of its own
	ReasonWorkerKilled Reason = "worker_killed" // a worker was killed by a signal
	ReasonHang         Reason = "hang"          // no worker made progress, and --hang-action ended the job
	ReasonUsage        Reason = "usage"         // bad input or a bad environment; nothing was started
	ReasonRendezvous   Reason = "rendezvous"    // no rendezvous was formed, or it was lost
	// The next four: a worker failed, and a rule of the job's policy forbids a restart.
	ReasonStopRequested Reason = "stop_requested" // a worker asked for the job's end
	ReasonFinalCode     Reason = "final_code"     // the exit code is one of --final-codes
	ReasonSameFailure   Reason = "same_failure"   // --max-same-failures
	ReasonNoProgress    Reason = "no_progress"    // --max-restarts-without-progress
	ReasonClosed        Reason = "closed"         // somebody closed the run
	ReasonNodeLost      Reason = "node_lost"      // a node was lost after others had finished and left
	ReasonPreempted     Reason = "preempted"      // the job was preempted on all nodes; run it again
	ReasonSignal        Reason = "signal"         // a signal stopped the launcher
	ReasonStuck         Reason = "stuck"          // processes of the job outlived SIGKILL
	ReasonPreflight     Reason = "preflight"      // a check of this machine failed before it joined or rejoined the job
	ReasonFinished      Reason = "finished"       // the run id belongs to a finished run; nothing was started
	ReasonOutput        Reason = "output"         // the job succeeded, but lost output that nothing records
	ReasonInternal      Reason = "internal"       // a defect of elasticrun
	// ReasonNothingStarted belongs to exit code 0: the job had already succeeded without this node.
	ReasonNothingStarted Reason = "nothing_started"
)

// reasons lists all reasons.
func reasons() []Reason {
	return []Reason{
		ReasonWorkerFailed, ReasonWorkerKilled, ReasonHang,
		ReasonStopRequested, ReasonFinalCode, ReasonSameFailure, ReasonNoProgress, ReasonUsage,
		ReasonRendezvous, ReasonClosed, ReasonNodeLost, ReasonPreempted, ReasonSignal, ReasonStuck, ReasonPreflight,
		ReasonFinished, ReasonOutput, ReasonInternal, ReasonNothingStarted,
	}
}

// Map replaces exit codes. The zero value replaces none.
type Map struct {
	codes   map[int]int
	reasons map[Reason]int
}

// ParseMap reads FROM=TO,... where FROM is an exit code from 1 to 255 or a reason, and TO is an exit code from 0 to
// 255. Exit code 0 can be replaced only by its reason nothing_started. An empty text is a map without rules.
func ParseMap(s string) (Map, error) {
	m := Map{codes: map[int]int{}, reasons: map[Reason]int{}}
	if strings.TrimSpace(s) == "" {
		return m, nil
	}
	for item := range strings.SplitSeq(s, ",") {
		from, to, found := strings.Cut(item, "=")
		from, to = strings.TrimSpace(from), strings.TrimSpace(to)
		if !found {
			return Map{}, fmt.Errorf("%q is not FROM=TO", item)
		}
		code, err := strconv.Atoi(to)
		if err != nil || code < 0 || code > 255 {
			return Map{}, fmt.Errorf("%q: the code after = must be between 0 and 255", item)
		}
		if err := m.add(from, code); err != nil {
			return Map{}, fmt.Errorf("%q: %w", item, err)
		}
	}
	return m, nil
}

func (m Map) add(from string, to int) error {
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
	if !slices.Contains(reasons(), Reason(from)) {
		return fmt.Errorf("the text before = must be a code or one of %s", ReasonList())
	}
	if _, ok := m.reasons[Reason(from)]; ok {
		return twice
	}
	m.reasons[Reason(from)] = to
	return nil
}

// ReasonList returns all reasons, separated by commas, for messages.
func ReasonList() string {
	words := make([]string, 0, len(reasons()))
	for _, r := range reasons() {
		words = append(words, string(r))
	}
	return strings.Join(words, ", ")
}

// Apply returns the exit code that replaces code, or code itself. why is the reason of code. A rule for the code takes
// precedence over a rule for the reason.
func (m Map) Apply(code int, why Reason) int {
	if to, ok := m.codes[code]; ok {
		return to
	}
	if to, ok := m.reasons[why]; ok {
		return to
	}
	return code
}
