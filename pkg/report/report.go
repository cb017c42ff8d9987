package report

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"time"
)

// Schema is the version of the JSON form. It changes when a field goes or changes its meaning, not when one is added.
const Schema = 1

// What a report holds at most; the counts beside the lists tell how many there were.
const (
	MaxRounds   = 100      // of Rounds: the last
	MaxWarnings = 100      // of Warnings: the first
	MaxFiles    = 128      // of Attempts and FlightRecorder: the last
	MaxText     = 64 << 10 // bytes of a Failure's Text: its end
	MaxLine     = 4 << 10  // bytes of what is meant as one line: its begin
	MaxSummary  = 300      // bytes of a summary in the last line of stderr and in the event log: its begin
)

// Report is how one launch ended on one node. docs/report.md describes its JSON form to users.
type Report struct {
	Schema  int    `json:"schema"`
	Version string `json:"elasticrun_version"`
	RunID   string `json:"run_id"`
	// Name is the script or program, as the text report is headed.
	Name string `json:"name"`
	Host string `json:"host"`
	// NodeRank and Round are those of the last round this node was in; nil where it was in none.
	NodeRank *int `json:"node_rank"`
	Round    *int `json:"round"`
	Started  Time `json:"started"`
	Ended    Time `json:"ended"`
	// Duration is the time between, in seconds; it is computed.
	Duration float64 `json:"duration"`
	// ExitCode is what the launcher ends with, after --exit-code-map.
	ExitCode int `json:"exit_code"`
	// Reason is the reason= of the last line on stderr, or "success".
	Reason string `json:"reason"`
	// Error is what the launcher itself had to say; empty where a worker is the cause.
	Error string `json:"error,omitempty"`
	// Restarts counts the restarts of the job that were charged.
	Restarts int `json:"restarts"`
	// RoundCount is how many rounds this node was in; Rounds holds the last of them.
	RoundCount int     `json:"round_count"`
	Rounds     []Round `json:"rounds"`
	// RootCause is the failure that ended the job, on whatever node; nil where none is known.
	RootCause *Failure `json:"root_cause"`
	// Note is one line of what to think of the root cause; empty for nothing.
	Note string `json:"note,omitempty"`
	// Failures are the others of this node's workers that failed in the last round; OtherNodes are what other nodes
	// name as theirs.
	Failures   []Failure `json:"failures"`
	OtherNodes []Failure `json:"other_nodes"`
	// LogDir is the run's log folder and Attempts its folders of each start; empty where nothing was kept.
	LogDir   string   `json:"log_dir,omitempty"`
	Attempts []string `json:"attempt_dirs"`
	// FlightRecorder are the dumps of NCCL's flight recorder.
	FlightRecorder []string `json:"flight_recorder"`
	// WarningCount is how many warnings there were; Warnings holds the first of them.
	WarningCount int       `json:"warning_count"`
	Warnings     []Warning `json:"warnings"`
}

// How a round ends for a node.
const (
	EndSuccess = "success" // the job has succeeded
	EndFailure = "failure" // a worker of this node failed
	EndStopped = "stopped" // something elsewhere failed, came or went
	EndSignal  = "signal"  // the launcher was told to stop
	EndError   = "error"   // the launcher could not go on
)

// Round is one round that this node was in.
type Round struct {
	Number   int  `json:"round"`
	Restarts int  `json:"restarts"` // charged until it began
	Nodes    int  `json:"nodes"`
	NodeRank int  `json:"node_rank"`
	Workers  int  `json:"workers"` // of all nodes
	Started  Time `json:"started"`
	Ended    Time `json:"ended"`
	// End is one of EndSuccess and its like.
	End string `json:"end"`
	// Why is one line for people.
	Why string `json:"why,omitempty"`
	// LogDir is the folder of its log files; empty for none.
	LogDir string `json:"log_dir,omitempty"`
	// Failure is the likeliest of this node's own, of workers that were stopped, too; nil where there is none.
	Failure *Failure `json:"failure"`
}

// Failure is one worker that failed.
type Failure struct {
	Host      string `json:"host"`
	Rank      int    `json:"rank"`
	LocalRank int    `json:"local_rank"`
	PID       int    `json:"pid,omitempty"` // 0 where it could not be started
	Time      Time   `json:"time,omitzero"`
	// ExitCode is counted as shells do, 128+n for signal n; PythonCode as torchrun does, -n.
	ExitCode   int    `json:"exit_code"`
	PythonCode int    `json:"python_exit_code"`
	Signal     string `json:"signal,omitempty"` // SIGKILL; empty where none killed it
	CoreDumped bool   `json:"core_dumped,omitempty"`
	// Kind names the strongest evidence, and Summary is the reason in one line.
	Kind     string    `json:"kind,omitempty"`
	Summary  string    `json:"summary"`
	Findings []Finding `json:"findings,omitempty"`
	// ErrorFile is the file that the worker wrote, ErrorFileProblem why it could not be used.
	ErrorFile        string `json:"error_file,omitempty"`
	ErrorFileProblem string `json:"error_file_problem,omitempty"`
	Message          string `json:"message,omitempty"` // of the error file
	// LogFile is where its stderr went.
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

// Warning is one line of the launcher's own log, from level warn on.
type Warning struct {
	Time  Time   `json:"time"`
	Level string `json:"level"`
	Text  string `json:"text"`
}

// Time is a time in RFC 3339, UTC, with milliseconds.
type Time struct{ time.Time }

// MarshalJSON implements json.Marshaler. A time that is not known is null.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return []byte(t.UTC().Format(`"2006-01-02T15:04:05.000Z"`)), nil
}

// JSON returns the report as one indented object. What is not UTF-8 is replaced, what is too long is cut, and lists are never null.
func (r Report) JSON() ([]byte, error) {
	r.bound()
	return Indented(r)
}

// Indented returns v as JSON for programs that people read, too: with indents, and <, > and & as they are.
func Indented(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// bound fills in what follows from the rest and cuts what is too long. It changes no slice that the caller has.
func (r *Report) bound() {
	r.Schema = Schema
	r.Duration = math.Round(r.Ended.Sub(r.Started.Time).Seconds()*1000) / 1000 // to milliseconds, as times are
	r.Error = Begin(r.Error, MaxLine)
	r.RoundCount = max(r.RoundCount, len(r.Rounds))
	r.WarningCount = max(r.WarningCount, len(r.Warnings))
	r.Rounds = append([]Round{}, r.Rounds[max(0, len(r.Rounds)-MaxRounds):]...)
	for i := range r.Rounds {
		r.Rounds[i].Why = Begin(r.Rounds[i].Why, MaxLine)
		r.Rounds[i].Failure = r.Rounds[i].Failure.bounded()
	}
	r.RootCause = r.RootCause.bounded()
	r.Failures, r.OtherNodes = allBounded(r.Failures), allBounded(r.OtherNodes)
	r.Attempts = append([]string{}, r.Attempts[max(0, len(r.Attempts)-MaxFiles):]...)
	r.FlightRecorder = append([]string{}, r.FlightRecorder[max(0, len(r.FlightRecorder)-MaxFiles):]...)
	r.Warnings = append([]Warning{}, r.Warnings[:min(len(r.Warnings), MaxWarnings)]...)
	for i := range r.Warnings {
		r.Warnings[i].Text = Begin(r.Warnings[i].Text, MaxLine)
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
	g.Summary, g.Message, g.ErrorFileProblem = Begin(g.Summary, MaxLine), Begin(g.Message, MaxLine), Begin(g.ErrorFileProblem, MaxLine)
	g.Text = End(g.Text, MaxText)
	g.Findings = append([]Finding(nil), g.Findings...)
	for i := range g.Findings {
		g.Findings[i].Text = Begin(g.Findings[i].Text, MaxLine)
	}
	return &g
}

// cut stands where text was left out.
const cut = "[...]"

// Begin returns s as valid UTF-8, or as much of its begin as fits into limit bytes.
func Begin(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-len(cut)], "") + cut
}

// End returns s as valid UTF-8, or as many of its last lines as fit into limit bytes: the end of a traceback says the most.
func End(s string, limit int) string {
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
