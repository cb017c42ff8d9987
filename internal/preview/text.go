package preview

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/interpreter"
	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// unknown stands for a value that is decided only at the start.
const unknown = "?"

// Text describes the plan for people.
func (p Plan) Text() string {
	var b strings.Builder
	section := func(title string, lines ...string) {
		fmt.Fprintf(&b, "%s\n", title)
		for _, line := range lines {
			if line != "" {
				fmt.Fprintf(&b, "  %s\n", shown(line))
			}
		}
	}
	if len(p.StartedBy) > 0 {
		section("started by", shellCommand(p.StartedBy),
			"the rest is as seen from here: the step of srun has its own run id and port")
	}
	section("settings"+from(p.ConfigFile), p.settingLines()...)
	section("job", p.jobLines()...)
	section("rendezvous", p.rendezvousLines()...)
	section("logs", p.logLines()...)
	section("workers on "+shown(p.Host), p.workerLines()...)
	if len(p.Warnings) > 0 {
		section("warnings", p.Warnings...)
	}
	return b.String()
}

func from(file string) string {
	if file == "" {
		return ""
	}
	return " (with the config file " + shown(file) + ")"
}

// shown makes a value safe for one line of a terminal: it can neither control the terminal nor turn the direction of
// text.
func shown(value string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, report.OneLine(value))
}

// settingLines formats the settings that something has set as a table.
func (p Plan) settingLines() []string {
	var lines []string
	for _, s := range p.Settings {
		if s.Source == (config.Source{}).String() {
			continue
		}
		value := s.Value
		if value == "" {
			value = "-"
		}
		lines = append(lines, fmt.Sprintf("%-26s %-22s %s", s.Name, value, s.Source))
	}
	return append(lines, fmt.Sprintf("%d have their defaults, which --json lists", len(p.Settings)-len(lines)))
}

func (p Plan) jobLines() []string {
	j := p.Job
	runID, nodes := j.RunID, strconv.Itoa(j.MinNodes)
	if runID == "" {
		runID = "a new one for each launch"
	}
	if j.MaxNodes > j.MinNodes {
		nodes += " to " + strconv.Itoa(j.MaxNodes)
		if j.ExpectedNodes != nil {
			nodes += fmt.Sprintf(", %d of them expected", *j.ExpectedNodes)
		}
		if j.NodesMultiple > 1 {
			nodes += fmt.Sprintf("; each round has a multiple of %d, and the others are spares", j.NodesMultiple)
		}
	}
	lines := []string{"run id       " + runID, "nodes        " + nodes}
	if j.NodeRank != nil {
		lines = append(lines, "node rank    "+strconv.Itoa(*j.NodeRank))
	}
	lines = append(lines,
		fmt.Sprintf("workers here %d, role %s", j.NprocPerNode, j.Role),
		fmt.Sprintf("restarts     at most %d", j.MaxRestarts))
	return append(lines, labeled("preemption   ", j.Preemption), "ranks        "+p.RanksNote)
}

func (p Plan) rendezvousLines() []string {
	r := p.Rendezvous
	lines := []string{
		"backend      " + r.Backend, "endpoint     " + r.Endpoint,
		fmt.Sprintf("hosted here  %s: %s", r.Hosts, r.HostsWhy),
		labeled("store kept   ", r.Keepers), "admission    " + r.Admission,
		"worker store " + r.WorkerStore,
		fmt.Sprintf("join timeout %s", seconds.Format(time.Duration(r.JoinTimeout*float64(time.Second)))),
		labeled("finished     ", r.Finished),
	}
	for _, e := range r.Endpoints {
		if e.Socket != "" {
			for _, a := range e.Addresses {
				lines = append(lines, fmt.Sprintf("at %s: %s", e.Socket, a.found()))
			}
			continue
		}
		lines = append(lines, fmt.Sprintf("at %s, port %d:", e.Host, e.Port))
		if e.Problem != "" {
			lines = append(lines, "  "+e.Problem)
		}
		for _, a := range e.Addresses {
			lines = append(lines, "  "+a.line())
		}
	}
	return lines
}

// labeled returns the value after its label; "" if there is no value.
func labeled(label, value string) string {
	if value == "" {
		return ""
	}
	return label + value
}

func (a Address) line() string {
	where := "another machine"
	if a.Local {
		where = "this machine"
	}
	line := fmt.Sprintf("%s (%s): %s", a.Addr, where, a.found())
	if a.Store != nil {
		line += fmt.Sprintf("; round trip %.1f ms, its clock is ahead by %.1f ms", a.Store.RoundTrip*1e3,
			a.Store.ClockOffset*1e3)
	}
	return line
}

// found says what is at the address.
func (a Address) found() string {
	if a.State == StateNobody {
		return a.Detail // it says the same
	}
	return a.State + ": " + a.Detail
}

func (p Plan) logLines() []string {
	switch {
	case p.Logs.Folder == "":
		return []string{"none are written"}
	case p.Logs.Temporary:
		return []string{p.Logs.Folder, "removed at the end if nothing was written to it"}
	}
	return []string{p.Logs.Folder}
}

func (i Interpreter) text() string {
	text := fmt.Sprintf("%s (from %s)", i.Path, i.Source)
	if i.PythonVersion != "" {
		text += ", Python " + i.PythonVersion
	}
	switch {
	case i.TorchVersion != "":
		text += ", torch " + i.TorchVersion
	case i.Torch == interpreter.Present.String():
		text += ", torch"
	case i.Torch == interpreter.Absent.String():
		text += ", no torch"
	}
	return text
}

// workerLines describes first what all workers share, and then the rest of each worker.
func (p Plan) workerLines() []string {
	if len(p.Workers) == 0 {
		return nil
	}
	var lines []string
	if p.Interpreter != nil {
		lines = append(lines, "interpreter  "+p.Interpreter.text())
	}
	first := p.Workers[0]
	same := func(of func(Worker) string) bool {
		return !slices.ContainsFunc(p.Workers, func(w Worker) bool { return of(w) != of(first) })
	}
	sameCommand := same(Worker.command)
	if sameCommand {
		lines = append(lines, "command      "+first.command())
	}
	shared := p.sharedEnv()
	lines = append(lines, "environment  (what elasticrun sets; "+unknown+" is decided only at the start)")
	for _, kv := range shared {
		lines = append(lines, "  "+kv)
	}
	for _, w := range p.Workers {
		head := fmt.Sprintf("local rank %d, rank %s", w.LocalRank, orUnknown(w.Rank))
		if w.CPUs != "" {
			head += ", on CPUs " + w.CPUs
		}
		lines = append(lines, head)
		if !sameCommand {
			lines = append(lines, "  command    "+w.command())
		}
		lines = append(lines, "  stdout     "+w.Stdout.text(), "  stderr     "+w.Stderr.text())
		for _, v := range w.Env {
			if kv := v.text(); !slices.Contains(shared, kv) {
				lines = append(lines, "  "+kv)
			}
		}
	}
	return lines
}

// sharedEnv returns the variables that all workers have with the same value.
func (p Plan) sharedEnv() []string {
	var shared []string
	for _, v := range p.Workers[0].Env {
		kv := v.text()
		if !slices.ContainsFunc(p.Workers, func(w Worker) bool {
			return !slices.ContainsFunc(w.Env, func(o Variable) bool { return o.text() == kv })
		}) {
			shared = append(shared, kv)
		}
	}
	return shared
}

func (v Variable) text() string {
	if v.Value == nil {
		return v.Name + "=" + unknown
	}
	return v.Name + "=" + *v.Value
}

func orUnknown(n *int) string {
	if n == nil {
		return unknown
	}
	return strconv.Itoa(*n)
}

func (w Worker) command() string { return shellCommand(w.Command) }

// shellCommand quotes a command for a shell.
func shellCommand(command []string) string {
	words := make([]string, len(command))
	for i, word := range command {
		words[i] = printable.ShellWord(word)
	}
	return strings.Join(words, " ")
}

func (s Stream) text() string {
	if !s.Known {
		return "depends on the rank"
	}
	var to []string
	if s.File != "" {
		to = append(to, s.File)
	}
	if s.Console {
		console := "console"
		if s.Prefix != "" {
			console += " with " + strconv.Quote(s.Prefix) + " before each line"
		}
		to = append(to, console)
	}
	if s.FilteredFile != "" {
		to = append(to, "filtered lines to "+s.FilteredFile)
	}
	if len(to) == 0 {
		return "nowhere"
	}
	return strings.Join(to, ", ")
}
