package hang

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/plural"
	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/internal/stacks"
)

// Worker returns the worker of a rank; false if the finding has none.
func (f Finding) Worker(rank int) (stacks.Worker, bool) {
	i := slices.IndexFunc(f.Workers, func(w stacks.Worker) bool { return w.Rank == rank })
	if i < 0 {
		return stacks.Worker{}, false
	}
	return f.Workers[i], true
}

// Summary is the finding in one line: how long nothing has moved, and which rank is the likeliest reason.
func (f Finding) Summary() string {
	if !f.Hang {
		return "no hang: " + f.Why
	}
	return fmt.Sprintf("no rank has shown progress for %s; %s", rounded(f.Quiet), f.Suspect())
}

// rounded formats a time in whole seconds.
func rounded(d time.Duration) string { return seconds.Format(d.Round(time.Second)) }

// Suspect names the likeliest reason in one line.
func (f Finding) Suspect() string {
	if len(f.Odd) == 0 {
		return f.nobody()
	}
	first, _ := f.Worker(f.Odd[0])
	name := fmt.Sprintf("rank %d on %s", first.Rank, printable.Line(first.Host))
	does, has := "is", "has"
	if n := len(f.Odd); n > 1 {
		name, does, has = stacks.Ranks(f.Odd), "are", "have"
	}
	place := cmp.Or(first.Where(), "silent")
	where := does + " " + place
	switch f.Reason {
	case StoppedWorker:
		return fmt.Sprintf("%s %s stopped by a signal, %s", name, does, place)
	case KernelWorker:
		in := ""
		if _, ok := first.UserFrame(); ok {
			in = ", " + first.Where()
		}
		return fmt.Sprintf("%s %s in the kernel, where no signal ends it (%s)%s", name, verb(f.Odd),
			cmp.Or(first.Wait, first.State), in)
	case StoppedChild:
		return fmt.Sprintf("%s %s a process that cannot run: %s; it %s", name, has, first.Life.StuckChild, where)
	case ExitedEarly:
		return fmt.Sprintf("%s %s exited with 0 while the others wait", name, has)
	case NotWaiting:
		if c := working(first.Children); len(c) > 0 {
			where += fmt.Sprintf(", and its %s,", c[0])
		}
		return fmt.Sprintf("%s %s while the others wait for a peer", name, where)
	case OtherOperation:
		return fmt.Sprintf("%s while the others wait in %s", f.operations(), lastPart(f.mostCommonOperation()))
	case BehindOthers:
		return fmt.Sprintf("%s %s, in an earlier step than the others", name, where)
	case OtherPlace, NoneStandsOut:
	}
	return name + " " + where
}

// nobody says in one line that no rank is likelier than the others.
func (f Finding) nobody() string {
	const unknown = "which rank is the reason cannot be told from outside"
	ranks := map[string][]int{}
	for _, w := range f.Workers {
		name := lastPart(operation(w))
		ranks[name] = append(ranks[name], w.Rank)
	}
	if len(ranks) < 2 || len(ranks[""]) > 0 {
		return unknown
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(ranks)) {
		parts = append(parts, fmt.Sprintf("%s in %s", stacks.Ranks(ranks[name]), name))
	}
	return "the ranks wait in different operations, which never match: " + strings.Join(parts, ", ") + "; " + unknown
}

// lastPart returns the last part of a qualified name.
func lastPart(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// verb returns "waits" for one rank, and "wait" for several.
func verb(ranks []int) string {
	if len(ranks) > 1 {
		return "wait"
	}
	return "waits"
}

// operations says in which operations the first few of the odd ranks wait.
func (f Finding) operations() string {
	var parts []string
	for _, rank := range f.Odd[:min(len(f.Odd), maxDetails)] {
		w, _ := f.Worker(rank)
		where := "elsewhere"
		if name := operation(w); name != "" {
			where = "in " + lastPart(name)
		}
		parts = append(parts, fmt.Sprintf("rank %d on %s waits %s", rank, printable.Line(w.Host), where))
	}
	if left := len(f.Odd) - len(parts); left > 0 {
		parts = append(parts, plural.Of(left, "rank")+" elsewhere")
	}
	return strings.Join(parts, " and ")
}

// mostCommonOperation returns the operation of the workers that are not odd.
func (f Finding) mostCommonOperation() string {
	for _, w := range f.Workers {
		if !slices.Contains(f.Odd, w.Rank) {
			return operation(w)
		}
	}
	return ""
}

// detail says in one line what is known of a worker besides its stack.
func detail(w stacks.Worker) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	add("rank %d: pid %d", w.Rank, cmp.Or(w.PythonPID, w.PID))
	switch {
	case w.State != "" && w.Wait != "":
		add("%s in %s", w.State, printable.Line(w.Wait))
	case w.State != "":
		add("%s", w.State)
	}
	l := w.Life
	if l == nil {
		return strings.Join(parts, ", ")
	}
	if l.Sign != "" {
		add("last sign of life %s ago (%s)", rounded(l.SinceSign()), l.Sign)
	}
	if l.Step != nil {
		add("step %d", *l.Step)
	}
	switch l.Activity {
	case stacks.Spinning:
		add("it uses CPU time (%.0f %% of a core)", 100*l.Share)
	case stacks.Polling:
		add("it wakes up now and then")
	case stacks.Held, stacks.Unknown, stacks.Moving, stacks.Stopped, stacks.Blocked, stacks.Disk, stacks.Idle:
	}
	for _, c := range working(w.Children) {
		add("%s", c)
	}
	for _, child := range []string{l.StuckChild, l.BusyChild} {
		if child != "" {
			add("%s", printable.Line(child))
		}
	}
	if l.LastLine != "" {
		add("last line: %s", strconv.Quote(shorten(l.LastLine)))
	}
	return strings.Join(parts, ", ")
}

// maxChildren is how many processes below a worker are described.
const maxChildren = 2

// working returns the first maxChildren of the processes that are in code of the user's.
func working(children []stacks.Child) []stacks.Child {
	found := slices.DeleteFunc(slices.Clone(children), func(c stacks.Child) bool { return c.Working() == "" })
	return found[:min(len(found), maxChildren)]
}

// maxLine is the longest last line of a worker that is shown, in bytes.
const maxLine = 100

func shorten(line string) string {
	if len(line) > maxLine {
		return strings.ToValidUTF8(line[:maxLine], "") + "..."
	}
	return line
}

const (
	// maxConsole is the most lines of Brief and Evidence: as many as people see at once.
	maxConsole = 30
	// maxDetails is how many ranks they describe in a line each.
	maxDetails = 3
)

// Brief shows the finding to people: a title and a text, in at most 30 lines together. whole says where all stacks are,
// and next what follows; each may be empty.
func (f Finding) Brief(whole, next string) (title, text string) {
	replied := ""
	if len(f.NoReply) > 0 {
		replied = " that replied"
	}
	title = fmt.Sprintf("hang suspected: none of %s%s has shown progress for %s", plural.Of(len(f.Workers), "rank"),
		replied, rounded(f.Quiet))
	if len(f.Workers) == 1 {
		title = fmt.Sprintf("hang suspected: the only rank%s has shown no progress for %s", replied, rounded(f.Quiet))
	}
	return title, f.Suspect() + "\n" + f.evidence(whole, next, maxConsole-2)
}

// Evidence shows what supports the finding, in about 30 lines. whole is as in Brief.
func (f Finding) Evidence(whole string) string { return f.evidence(whole, "", maxConsole) }

func (f Finding) evidence(whole, next string, limit int) string {
	var lines []string
	for _, rank := range f.described() {
		if w, ok := f.Worker(rank); ok {
			lines = append(lines, detail(w))
		}
	}
	if len(f.NoReply) > 0 {
		lines = append(lines, "no reply from "+printable.Line(strings.Join(f.NoReply, ", ")))
	}
	for _, line := range []string{whole, next} {
		if line != "" {
			lines = append(lines, line)
		}
	}
	text := stacks.Brief(f.groups(), false, limit-len(lines)-1)
	if len(lines) > 0 {
		text = strings.Join(lines, "\n") + "\n\n" + text
	}
	return text
}

// described returns the ranks that get a line each: the first odd ranks, else the lowest rank of each of the first
// groups.
func (f Finding) described() []int {
	ranks := f.Odd
	if len(ranks) == 0 {
		for _, g := range f.groups() {
			ranks = append(ranks, g.Workers[0].Rank)
		}
	}
	return ranks[:min(len(ranks), maxDetails)]
}

// groups returns the groups of workers that do the same, those with odd ranks first.
func (f Finding) groups() []stacks.Group {
	groups := stacks.Merge(f.Workers, false)
	isOdd := func(g stacks.Group) bool {
		return slices.ContainsFunc(g.Workers, func(w stacks.Worker) bool { return slices.Contains(f.Odd, w.Rank) })
	}
	slices.SortStableFunc(groups, func(a, b stacks.Group) int {
		rank := func(g stacks.Group) int {
			if isOdd(g) {
				return 0
			}
			return 1
		}
		return cmp.Compare(rank(a), rank(b))
	})
	return groups
}

// Record is the JSON form of a finding.
type Record struct {
	Time    time.Time       `json:"time"`
	Summary string          `json:"summary"`
	Ranks   []int           `json:"ranks"` // the likeliest reason; empty if none stands out
	Reason  Reason          `json:"reason,omitempty"`
	Proof   bool            `json:"proof,omitempty"`
	Quiet   float64         `json:"quiet"` // seconds since the last sign of life of any worker
	NoReply []string        `json:"silent_nodes,omitempty"`
	Workers []stacks.Worker `json:"workers"`
}

// Record returns the JSON form of the finding.
func (f Finding) Record(at time.Time) Record {
	ranks := append([]int{}, f.Odd...) // an empty list in JSON, not null
	return Record{at, f.Summary(), ranks, f.Reason, f.Proof, f.Quiet.Seconds(), f.NoReply, f.Workers}
}

// Text shows the whole finding: what is known of each rank, and all stacks.
func (f Finding) Text(at time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\n", at.Format(time.RFC3339), f.Summary())
	for _, w := range f.Workers {
		fmt.Fprintf(&b, "%s (%s)\n", detail(w), cmp.Or(string(activityOf(w)), "exited"))
	}
	if len(f.NoReply) > 0 {
		fmt.Fprintf(&b, "no reply from %s\n", strings.Join(f.NoReply, ", "))
	}
	b.WriteString("\n" + stacks.Text(f.groups(), true))
	return b.String()
}
