package status

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/elasticrun/elasticrun/internal/bytesize"
	"github.com/elasticrun/elasticrun/internal/plural"
	"github.com/elasticrun/elasticrun/internal/seconds"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// maxText bounds a cell of text, in bytes, maxWhy what a node waits for, and maxProblem why a loss may end the job.
const (
	maxText    = 60
	maxWhy     = 160
	maxProblem = 400
)

// Text shows the job to people.
func (j Job) Text() string {
	var b strings.Builder
	b.WriteString(j.headline() + "\n")
	if j.Store != nil {
		b.WriteString(j.Store.text() + "\n")
	}
	if len(j.Nodes) == 0 {
		return b.String()
	}
	b.WriteString("\n")
	now := j.Time.Time
	table(&b, "NODE\tHOST\tSTATE\tFOR\tWORKERS\tCPU\tMEMORY\tGPU\tLAST LINE", len(j.Nodes),
		func(i int) string { return nodeRow(j.Nodes[i], now) })
	if len(j.Nodes) == 1 && j.Nodes[0].Status != nil {
		workers := j.Nodes[0].Status.Workers
		b.WriteString("\n")
		table(&b, "RANK\tLOCAL\tPID\tSTATE\tFOR\tCPU\tMEMORY\tSTEP\tQUIET\tLAST LINE", len(workers),
			func(i int) string { return workerRow(workers[i], now) })
	}
	if g := j.Goodput; g != nil && g.Total() > 0 {
		fmt.Fprintf(&b, "\ngoodput: %s\n", g.Details())
	}
	if h := j.hang(); h != nil {
		fmt.Fprintf(&b, "\nhang suspected %s ago: %s; elasticrun stacks shows where all workers are\n", age(now, h.Time),
			cleanUpTo(report.MaxSummary, h.Summary))
	}
	if f, host := j.lastFailure(); f != nil {
		fmt.Fprintf(&b, "\nlast failure: rank %d on %s in round %d, %s ago: %s\n", f.Rank, host, f.Round,
			age(now, f.Time), cleanUpTo(report.MaxSummary, f.Summary))
	}
	return b.String()
}

// headline describes the whole job in one line.
func (j Job) headline() string {
	var about []string
	if r := j.Round; r != nil {
		about = append(about, fmt.Sprintf("round %d, %s, %s, %d of %s", r.Number, plural.Of(r.Nodes, "node"),
			plural.Of(r.WorldSize, "worker"), r.Restarts, plural.Of(r.MaxRestarts, "restart")))
	}
	switch {
	case j.Result != "": // the store has no round any more
		about = append(about, "ended: "+cleanUpTo(report.MaxSummary, strings.TrimSuffix(j.Result+": "+j.Why, ": ")))
	case j.Round == nil:
		about = append(about, "no round yet")
	}
	return "run id " + clean(j.RunID) + ": " + strings.Join(about, ", ")
}

// text says in one line who keeps the store, and what its loss would cost.
func (s *Store) text() string {
	voters := make([]string, len(s.Voters))
	for i, addr := range s.Voters {
		voters[i] = clean(addr)
	}
	switch {
	case len(voters) == 1 && s.Problem != "":
		return "store: kept by " + voters[0] + " alone, whose loss would end the job: " + cleanUpTo(maxProblem, s.Problem)
	case len(voters) == 1 && len(s.Heirs) > 0:
		return fmt.Sprintf("store: kept by %s, from which %s takes over if its agent is killed; if its node is lost, the "+
			"job waits for it", voters[0], clean(s.Heirs[0]))
	case len(voters) == 1:
		return "store: kept by " + voters[0] + " alone, whose loss would end the job"
	case s.Problem != "":
		return fmt.Sprintf("store: kept by %s, led by %s: the loss of %s may end the job: %s", strings.Join(voters, ", "),
			clean(s.Leader), clean(s.Leader), cleanUpTo(maxProblem, s.Problem))
	case s.SurvivesLoss:
		return fmt.Sprintf("store: kept by %s, led by %s: any one node may be lost", strings.Join(voters, ", "),
			clean(s.Leader))
	}
	return fmt.Sprintf("store: kept by %s, led by %s: one of them is lost or new, and the loss of another one may end "+
		"the job", strings.Join(voters, ", "), clean(s.Leader))
}

// hang returns the latest known hang; nil if no node knows one.
func (j Job) hang() (last *Hang) {
	for _, n := range j.Nodes {
		if s := n.Status; s != nil && s.Hang != nil && (last == nil || s.Hang.Time.After(last.Time.Time)) {
			last = s.Hang
		}
	}
	return last
}

// lastFailure returns the latest known failure and its host.
func (j Job) lastFailure() (last *Failure, host string) {
	for _, n := range j.Nodes {
		if n.Status == nil || n.Status.LastFailure == nil {
			continue
		}
		if f := n.Status.LastFailure; last == nil || f.Time.After(last.Time.Time) {
			last, host = f, clean(n.Host)
		}
	}
	return last, host
}

func table(b *strings.Builder, head string, rows int, row func(i int) string) {
	var aligned strings.Builder
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, head) // a Builder takes it all
	for i := range rows {
		_, _ = fmt.Fprintln(w, row(i))
	}
	_ = w.Flush()
	for line := range strings.Lines(aligned.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

// nodeRow formats a node as cells.
func nodeRow(n Node, now time.Time) string {
	rank := "-"
	if n.Rank != nil {
		rank = strconv.Itoa(*n.Rank)
	}
	s := n.Status
	switch {
	case n.Left:
		return cells(rank, clean(n.Host), "left", "", fmt.Sprintf("0/%d", n.Workers), "", "", "", "all workers succeeded")
	case s == nil:
		return cells(rank, clean(n.Host), cmp.Or(clean(n.Note), "no reply"), "", fmt.Sprintf("?/%d", n.Workers), "", "",
			"", "")
	}
	up := 0
	for _, w := range s.Workers {
		if w.alive() {
			up++
		}
	}
	cpu, rss := totalUsage(s.Workers)
	text := clean(cmp.Or(n.Note, lastLine(s.Workers)))
	if s.Why != "" {
		text = whyText(*s, now)
	}
	return cells(rank, clean(n.Host), clean(string(s.State)), age(now, s.Since),
		fmt.Sprintf("%d/%d", up, max(n.Workers, s.LocalWorldSize)),
		cpu, rss, gpuSummary(s.GPUs), text)
}

// whyText says why the node is in its state, and how long ago it said so if that matters.
func whyText(s Snapshot, now time.Time) string {
	text := cleanUpTo(maxWhy, s.Why)
	if text != "" && s.WhyTime != nil {
		text += " (" + age(now, *s.WhyTime) + " ago)"
	}
	return text
}

// totalUsage returns the CPU and memory of all workers; "-" if unknown.
func totalUsage(workers []Worker) (cpu, memory string) {
	cpu, memory = "-", "-"
	percent, bytes := 0.0, uint64(0)
	for _, w := range workers {
		if w.Usage == nil {
			continue
		}
		bytes += w.Usage.RSSBytes
		memory = strings.ReplaceAll(bytesize.Format(bytes), " ", "") // one word, as the other cells with numbers
		if w.Usage.CPUPercent != nil {
			percent += *w.Usage.CPUPercent
			cpu = fmt.Sprintf("%.1f", percent/100)
		}
	}
	return cpu, memory
}

// cells joins the cells of a row.
func cells(all ...string) string { return strings.Join(all, "\t") }

// lastLine returns the last line of the lowest rank that has one.
func lastLine(workers []Worker) string {
	i := slices.IndexFunc(workers, func(w Worker) bool { return w.LastLine != "" })
	if i < 0 {
		return ""
	}
	return workers[i].LastLine
}

// gpuSummary returns the average utilization of the GPUs, and how full the fullest one is.
func gpuSummary(gpus []GPU) string {
	sum, n, full := 0, 0, 0.0
	for _, g := range gpus {
		if g.UtilizationPercent != nil {
			sum, n = sum+*g.UtilizationPercent, n+1
		}
		if g.MemoryUsedBytes != nil && g.MemoryTotalBytes != nil && *g.MemoryTotalBytes > 0 {
			full = max(full, float64(*g.MemoryUsedBytes)/float64(*g.MemoryTotalBytes))
		}
	}
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%d x %d%%, %.0f%% full", n, sum/n, 100*full)
}

func workerRow(w Worker, now time.Time) string {
	rank := "-"
	if w.Rank >= 0 {
		rank = strconv.Itoa(w.Rank)
	}
	cpu, rss := totalUsage([]Worker{w})
	state := clean(string(w.State))
	switch {
	case w.Signal != "":
		state += " " + clean(w.Signal)
	case w.State == WorkerFailed && w.ExitCode != nil:
		state += fmt.Sprintf(" %d", *w.ExitCode)
	}
	step, quiet := "-", "-"
	if w.Step != nil {
		step = strconv.FormatInt(*w.Step, 10)
	}
	if w.Quiet != nil {
		quiet = seconds.Format(time.Duration(*w.Quiet) * time.Second)
	}
	return cells(rank, strconv.Itoa(w.LocalRank), strconv.Itoa(w.PID), state, age(now, w.Since), cpu, rss, step, quiet,
		clean(w.LastLine))
}

// clean makes text of other nodes and of workers safe for a cell.
func clean(s string) string { return cleanUpTo(maxText, s) }

func cleanUpTo(size int, s string) string {
	return report.Head(strings.Join(strings.Fields(report.Printable(s)), " "), size)
}

// age formats the time since then. It is never negative, because the clocks of two machines may differ.
func age(now time.Time, then report.Time) string {
	if then.IsZero() {
		return "-"
	}
	return seconds.Format(max(0, now.Sub(then.Time)).Truncate(time.Second))
}
