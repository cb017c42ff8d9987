package report

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/pkg/goodput"
)

// Schema is the version of the JSON format. It changes when a field is removed or changes its meaning, not when a field
// is added.
const Schema = 1

// The limits of a report. RoundCount and WarningCount count all rounds and warnings.
const (
	MaxRounds   = 100      // of Rounds: the last
	MaxWarnings = 100      // of Warnings: the first
	MaxHangs    = 20       // of Hangs
	MaxFiles    = 128      // of Attempts and FlightRecorder: the last
	maxText     = 64 << 10 // bytes of a Failure's Text: the end
	MaxLine     = 4 << 10  // bytes of one line: the beginning
	MaxSummary  = 300      // bytes of a summary in the last line of stderr and in the event log: its beginning
)

// ReasonSuccess is the Reason of a launch that succeeded.
const ReasonSuccess = "success"

// Report is how one launch ended on one node. docs/report.md describes its JSON format.
type Report struct {
	Schema  int    `json:"schema"`
	Version string `json:"elasticrun_version"`
	RunID   string `json:"run_id"`
	// Name is the script or program. It heads the text report.
	Name string `json:"name"`
	// Script is the absolute path of the script or program, or -m and the module. Interpreter is the Python that ran it.
	// Each is empty if there is none.
	Script      string `json:"script,omitempty"`
	Interpreter string `json:"interpreter,omitempty"`
	Host        string `json:"host"`
	// NodeRank and Round belong to the last round that included this node; nil if there was none.
	NodeRank *int `json:"node_rank"`
	Round    *int `json:"round"`
	Started  Time `json:"started"`
	Ended    Time `json:"ended"`
	// Duration is the time from Started to Ended, in seconds. JSON and Text compute it.
	Duration float64 `json:"duration"`
	// ExitCode is the launcher's exit code, after --exit-code-map.
	ExitCode int `json:"exit_code"`
	// Reason is the reason= of the last line on stderr, or ReasonSuccess.
	Reason string `json:"reason"`
	// OthersUnknown says that this node has succeeded and ended before it knew how the other nodes end.
	OthersUnknown bool `json:"others_unknown,omitempty"`
	// ClosedBy says who closed the run, such as user@host; empty if nobody did or if that is not known.
	ClosedBy string `json:"closed_by,omitempty"`
	// SignaledBy is the process whose signal stopped the launcher; nil if there was no signal, if the sender is not known,
	// or if the kernel made the signal, as for Ctrl-C.
	SignaledBy *Sender `json:"signaled_by,omitempty"`
	// Error is the launcher's own error; empty if a worker is the cause.
	Error string `json:"error,omitempty"`
	// Restarts counts the charged restarts of the job.
	Restarts int `json:"restarts"`
	// NoRestart says which rule ended the job instead of a restart; empty if none did.
	NoRestart string `json:"no_restart,omitempty"`
	// Goodput is how all workers of the job have used their time; nil if that is not known.
	Goodput *goodput.Goodput `json:"goodput,omitempty"`
	// RoundCount is the number of rounds that included this node. Rounds holds the last ones.
	RoundCount int     `json:"round_count"`
	Rounds     []Round `json:"rounds"`
	// RootCause is the failure that ended the job, on any node; nil if none is known.
	RootCause *Failure `json:"root_cause"`
	// Note is one line that helps to read the root cause; empty for none.
	Note string `json:"note,omitempty"`
	// Failures are the other workers of this node that failed in the last round. OtherNodes are failures that other nodes
	// report.
	Failures   []Failure `json:"failures"`
	OtherNodes []Failure `json:"other_nodes"`
	// Hangs are the hangs of the job, at most MaxHangs, the last of them.
	Hangs []Hang `json:"hangs,omitempty"`
	// LogDir is the run's log folder, and Attempts are its folders for each start. They are empty if no logs were kept.
	LogDir   string   `json:"log_dir,omitempty"`
	Attempts []string `json:"attempt_dirs"`
	// FlightRecorder lists the dumps of NCCL's flight recorder.
	FlightRecorder []string `json:"flight_recorder"`
	// WarningCount is the number of warnings. Warnings holds the first ones.
	WarningCount int       `json:"warning_count"`
	Warnings     []Warning `json:"warnings"`
}

// Sender is a process that has sent a signal.
type Sender struct {
	// PID is 0 for a process outside the launcher's pid namespace.
	PID  int    `json:"pid"`
	UID  int    `json:"uid"`            // its real user
	User string `json:"user,omitempty"` // that user's name; empty if it has none on this machine
	// Command is the first 200 bytes of the command line; empty if the process had ended when the launcher looked.
	Command string `json:"command,omitempty"`
}

// The ways in which a round ends for a node.
const (
	EndSuccess = "success" // the job has succeeded
	EndFailure = "failure" // a worker of this node failed
	EndStopped = "stopped" // a worker elsewhere failed, or nodes came or went
	EndSignal  = "signal"  // the launcher received a stop signal
	EndError   = "error"   // the launcher itself failed
)

// Round is one round that included this node.
type Round struct {
	Number   int  `json:"round"`
	Restarts int  `json:"restarts"` // charged before it began
	Nodes    int  `json:"nodes"`
	NodeRank int  `json:"node_rank"`
	Workers  int  `json:"workers"` // of all nodes
	Started  Time `json:"started"`
	Ended    Time `json:"ended"`
	// End is EndSuccess, EndFailure, EndStopped, EndSignal or EndError.
	End string `json:"end"`
	// Why is one line for people.
	Why string `json:"why,omitempty"`
	// LogDir is the folder with its log files; empty for none.
	LogDir string `json:"log_dir,omitempty"`
	// Failure is this node's likeliest failure, which may be of a worker that was stopped; nil if there is none.
	Failure *Failure `json:"failure"`
}

// Hang is a time in which no worker of the job made progress.
type Hang struct {
	Time  Time `json:"time"` // when it was found
	Round int  `json:"round"`
	// Host is the node that examined all workers, and wrote their stacks to Files on that node: a text and a JSON file.
	// Files is empty if they could not be written.
	Host  string   `json:"host"`
	Files []string `json:"files,omitempty"`
	// Quiet is how long no worker had shown a sign of life, in seconds.
	Quiet float64 `json:"quiet"`
	// Ranks are the workers that are the likeliest reason; empty if none could be named.
	Ranks   []int  `json:"ranks"`
	Summary string `json:"summary"`
	// Over is when a worker of this node made progress again; zero if none did.
	Over Time `json:"over,omitzero"`
}

// Failure is the JSON view of a worker that failed. Package agent builds it from a failure.Failure.
type Failure struct {
	Host      string `json:"host"`
	Rank      int    `json:"rank"`
	LocalRank int    `json:"local_rank"`
	PID       int    `json:"pid,omitempty"` // 0 if it could not be started
	Time      Time   `json:"time,omitzero"`
	// ExitCode is counted as in shells, 128+n for signal n. PythonCode is counted as in torchrun, -n.
	ExitCode   int    `json:"exit_code"`
	PythonCode int    `json:"python_exit_code"`
	Signal     string `json:"signal,omitempty"` // such as SIGKILL; empty if it exited
	CoreDumped bool   `json:"core_dumped,omitempty"`
	// Kind is the kind of the strongest evidence. Summary is the reason in one line.
	Kind     string    `json:"kind,omitempty"`
	Summary  string    `json:"summary"`
	Findings []Finding `json:"findings,omitempty"`
	// ErrorFile is the error file that the worker wrote. ErrorFileProblem says why it could not be used.
	ErrorFile        string `json:"error_file,omitempty"`
	ErrorFileProblem string `json:"error_file_problem,omitempty"`
	Message          string `json:"message,omitempty"` // of the error file
	// LogFile is the file with its stderr.
	LogFile string `json:"log_file,omitempty"`
	// Text is the traceback of the error file, else the last lines of stderr.
	Text string `json:"text,omitempty"`
}

// Finding is one piece of evidence.
type Finding struct {
	Kind string `json:"kind"`
	Time Time   `json:"time,omitzero"`
	Text string `json:"text"`
}

// Warning is one line of the launcher's own log, of level warn or above.
type Warning struct {
	Time  Time   `json:"time"`
	Level string `json:"level"`
	Text  string `json:"text"`
}

// Time is a time whose JSON is RFC 3339 in UTC, with milliseconds.
type Time struct{ time.Time }

// MarshalJSON implements json.Marshaler. The zero time is null.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return []byte(t.UTC().Format(`"2006-01-02T15:04:05.000Z"`)), nil
}

// JSON returns the report as one indented object. It replaces invalid UTF-8 and cuts what is too long. Lists are never
// null.
func (r Report) JSON() ([]byte, error) {
	r.bound()
	return IndentedJSON(r)
}

// IndentedJSON returns v as indented JSON without HTML escapes.
func IndentedJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// bound computes the derived fields and cuts what is too long. It copies the slices that it changes.
func (r *Report) bound() {
	r.Schema = Schema
	r.Duration = math.Round(r.Ended.Sub(r.Started.Time).Seconds()*1000) / 1000 // milliseconds, like times
	r.Error, r.Note = Head(r.Error, MaxLine), Head(r.Note, MaxLine)
	r.RoundCount = max(r.RoundCount, len(r.Rounds))
	r.WarningCount = max(r.WarningCount, len(r.Warnings))
	r.Rounds = append([]Round{}, r.Rounds[max(0, len(r.Rounds)-MaxRounds):]...)
	for i := range r.Rounds {
		r.Rounds[i].Why = Head(r.Rounds[i].Why, MaxLine)
		r.Rounds[i].Failure = r.Rounds[i].Failure.bounded()
	}
	r.RootCause = r.RootCause.bounded()
	r.Failures, r.OtherNodes = allBounded(r.Failures), allBounded(r.OtherNodes)
	r.Attempts = append([]string{}, r.Attempts[max(0, len(r.Attempts)-MaxFiles):]...)
	r.FlightRecorder = append([]string{}, r.FlightRecorder[max(0, len(r.FlightRecorder)-MaxFiles):]...)
	r.Warnings = append([]Warning{}, r.Warnings[:min(len(r.Warnings), MaxWarnings)]...)
	for i := range r.Warnings {
		r.Warnings[i].Text = Head(r.Warnings[i].Text, MaxLine)
	}
}

func allBounded(all []Failure) []Failure {
	out := make([]Failure, 0, len(all))
	for _, f := range all {
		out = append(out, *f.bounded())
	}
	return out
}

func (f *Failure) bounded() *Failure {
	if f == nil {
		return nil
	}
	g := *f
	g.Summary, g.Message, g.ErrorFileProblem = Head(g.Summary, MaxLine), Head(g.Message, MaxLine),
		Head(g.ErrorFileProblem, MaxLine)
	g.Text = Tail(g.Text, maxText)
	g.Findings = append([]Finding(nil), g.Findings...)
	for i := range g.Findings {
		g.Findings[i].Text = Head(g.Findings[i].Text, MaxLine)
	}
	return &g
}

// cut marks where text was left out.
const cut = "[...]"

// Head returns s as valid UTF-8, or its beginning if s is longer than limit bytes.
func Head(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-len(cut)], "") + cut
}

// Tail returns s as valid UTF-8, or its last lines if s is longer than limit bytes. The end of a traceback is its most
// useful part.
func Tail(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	s = s[len(s)-limit+len(cut)+1:]
	if _, whole, found := strings.Cut(s, "\n"); found && whole != "" {
		s = whole
	}
	return cut + "\n" + strings.ToValidUTF8(s, "")
}
