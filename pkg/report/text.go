package report

import (
	"fmt"
	"strings"
	"time"
)

// width is the longest rule of the report, in columns.
const width = 60

// maxEntries is how many failures of this node, and how many of other nodes, the text shows beside the root cause.
// maxDumps is how many dumps it shows.
const (
	maxEntries = 16
	maxDumps   = 8
)

// Text describes a failed run for people: the root cause, the other failures of this node, failures of other nodes, and
// what ended earlier attempts. It keeps the headings and field names of torchrun's report (torch 2.14, ChildFailedError
// in torch/distributed/elastic/multiprocessing/errors/__init__.py), but omits empty fields. It is empty if no worker is
// known to have failed.
func (r Report) Text() string {
	if r.RootCause == nil {
		return ""
	}
	r.bound()
	title := path(r.Name) + " FAILED"
	root := "Root Cause (first observed failure):\n" + r.RootCause.entry(0)
	if r.Note != "" {
		root += "\n  note      : " + indent(r.Note)
	}
	sections := []string{root}
	if others := r.others(); others != "" {
		sections = append(sections, "Failures:\n"+others)
	}
	if earlier := r.earlier(); earlier != "" {
		sections = append(sections, "Earlier attempts:\n"+earlier)
	}
	if places := r.places(); places != "" {
		sections = append(sections, places)
	}
	columns := len(title)
	for line := range strings.Lines(strings.Join(sections, "\n")) {
		columns = max(columns, len(strings.TrimRight(line, "\n")))
	}
	columns = min(columns, width)
	double, single := strings.Repeat("=", columns), strings.Repeat("-", columns)
	return Printable(double + "\n" + title + "\n" + single + "\n" + strings.Join(sections, "\n"+single+"\n") + "\n" +
		double + "\n")
}

// others lists the failures besides the root cause; empty if there is none.
func (r Report) others() string {
	var entries []string
	index := 0
	list := func(all []Failure, where string) {
		for _, f := range all[:min(len(all), maxEntries)] {
			index++
			entries = append(entries, f.entry(index))
		}
		if more := len(all) - maxEntries; more > 0 {
			entries = append(entries, fmt.Sprintf("  and %d more %s", more, where))
		}
	}
	list(r.Failures, "on this node")
	list(r.OtherNodes, "on other nodes")
	return strings.Join(entries, "\n")
}

// places lists the files of the job and those with more information.
func (r Report) places() string {
	var lines []string
	if r.Script != "" && r.Script != r.Name {
		lines = append(lines, "script    : "+path(r.Script))
	}
	if r.Interpreter != "" {
		lines = append(lines, "python    : "+path(r.Interpreter))
	}
	if r.LogDir != "" {
		lines = append(lines, "logs      : "+path(r.LogDir))
	}
	for i, dump := range r.FlightRecorder {
		if i == maxDumps {
			lines = append(lines, fmt.Sprintf("  and %d more", len(r.FlightRecorder)-maxDumps))
			break
		}
		lines = append(lines, "nccl trace: "+path(dump))
	}
	return strings.Join(lines, "\n")
}

// path makes a file name safe to print in one line, because the name may contain any character.
func path(name string) string { return OneLine(Printable(name)) }

// earlier describes the failed attempts before the last one, in two lines each, the newest last; empty if there was
// none.
func (r Report) earlier() string {
	var entries []string
	for i, round := range r.Rounds[:max(0, len(r.Rounds)-1)] {
		charged := r.Rounds[i+1].Restarts > round.Restarts
		if charged || round.End == EndFailure {
			entries = append(entries, round.attempt())
		}
	}
	if more := len(entries) - maxEntries; more > 0 {
		entries = append([]string{fmt.Sprintf("  and %d more before", more)}, entries[more:]...)
	}
	return strings.Join(entries, "\n")
}

// maxReason is the longest reason of an earlier attempt, in bytes.
const maxReason = 300

// attempt describes a failed attempt: which worker failed, and why.
func (r Round) attempt() string {
	at, why := r.Ended, r.Why
	var about []string
	if f := r.Failure; f != nil && r.End == EndFailure {
		exit := fmt.Sprint(f.PythonCode)
		if f.Signal != "" {
			exit += " (" + f.Signal + ")"
		}
		at, why = f.Time, f.Summary
		about = []string{fmt.Sprintf("rank %d on %s", f.Rank, f.Host), "exitcode " + exit}
	}
	if when := at.local(); when != "" {
		about = append([]string{when}, about...)
	}
	why, _, _ = strings.Cut(strings.TrimSpace(why), "\n")
	text := fmt.Sprintf("  attempt %-2d: %s", r.Restarts, strings.Join(about, ", "))
	if why == "" {
		return text
	}
	return text + "\n  reason    : " + Head(why, maxReason)
}

// local formats a time as torchrun's report does; empty if it is unknown.
func (t Time) local() string {
	if t.IsZero() {
		return ""
	}
	return t.In(time.Local).Format("2006-01-02_15:04:05")
}

// entry describes one failure, without the fields that are unknown. The root cause has index 0.
func (f Failure) entry(index int) string {
	traceback := f.Text
	if traceback == f.Summary { // there is no more to say
		traceback = ""
	}
	exit := fmt.Sprintf("%d (pid: %d)", f.PythonCode, f.PID)
	if f.Signal != "" {
		exit += " (" + f.Signal + ")"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "[%d]:", index)
	for _, field := range []struct{ name, value string }{
		{"time", f.Time.local()},
		{"host", OneLine(f.Host)},
		{"rank", fmt.Sprintf("%d (local_rank: %d)", f.Rank, f.LocalRank)},
		{"exitcode", exit},
		{"error_file", f.ErrorFile},
		{"reason", indent(f.Summary)},
		{"traceback", indent(traceback)},
		{"log", f.LogFile},
	} {
		if field.value != "" {
			fmt.Fprintf(&text, "\n  %-10s: %s", field.name, field.value)
		}
	}
	return text.String()
}

// indent indents continuation lines to keep them inside their entry.
func indent(s string) string { return strings.ReplaceAll(s, "\n", "\n  ") }
