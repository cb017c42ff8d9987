package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// table holds what each round measured.
type table struct {
	names []string
	rows  []row
	cells map[place][]cell // one for each round
}

// row is one load, for all servers.
type row struct {
	conns int
	op    operation
}

type place struct {
	server, op string
	conns      int
}

func (r row) of(server string) place { return place{server, r.op.name, r.conns} }

func (t *table) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "conns\top\tserver\tCPU µs/op\tops/s\tp50 µs\tp99 µs\tclient µs/op\tothers' CPUs\t")
	for _, r := range t.rows {
		for _, name := range t.names {
			at := func(of func(cell) float64) float64 { return median(t.cells[r.of(name)], of) }
			fmt.Fprintf(w, "%d\t%s\t%s\t%.2f\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f\t\n", r.conns, r.op.name, name,
				at(cell.cpuOf), at(cell.rateOf), at(func(c cell) float64 { return c.p50 }), at(cell.p99Of),
				at(func(c cell) float64 { return c.client }), at(func(c cell) float64 { return c.others }))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if all, busy := t.disturbed(); busy > 0 {
		fmt.Fprintf(out, "%d of %d measurements were disturbed: others used more than %g CPUs.\n", busy, all, tolerable)
	}
	return t.printRatios(out)
}

// tolerable is how many CPUs others may use without a mention.
const tolerable = 0.2

func (t *table) disturbed() (all, busy int) {
	for _, cells := range t.cells {
		for _, c := range cells {
			all++
			if c.others > tolerable {
				busy++
			}
		}
	}
	return all, busy
}

func (c cell) cpuOf() float64  { return c.cpu }
func (c cell) rateOf() float64 { return c.rate }
func (c cell) p99Of() float64  { return c.p99 }

// printRatios compares every server with torch's and the floor. The floor's own figures say what a bar asks for.
func (t *table) printRatios(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nconns\top\tserver\tCPU/torch\tops/torch\tops/floor\tp99/torch")
	for _, r := range t.rows {
		for _, name := range t.names {
			if name == torch {
				continue
			}
			compare := func(other string, of func(cell) float64, b bar) string {
				ratios := divide(t.cells[r.of(name)], t.cells[r.of(other)], of)
				return b.show(name, "%.2f", median(ratios, func(r float64) float64 { return r }))
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", r.conns, r.op.name, name,
				compare(torch, cell.cpuOf, bar{most: r.op.cpu}), compare(torch, cell.rateOf, bar{least: 0.95}),
				compare(floor, cell.rateOf, bar{least: 0.85}), compare(torch, cell.p99Of, bar{most: 1.5}))
		}
	}
	return w.Flush()
}

// divide returns each round's ratio; none if one of the servers was not measured.
func divide(cells, others []cell, of func(cell) float64) []float64 {
	var ratios []float64
	for i := range min(len(cells), len(others)) {
		ratios = append(ratios, of(cells[i])/of(others[i]))
	}
	return ratios
}

func printCrowds(out io.Writer, names []string, results map[string][]crowd, failed map[string]error) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nserver\t%d served, s\tRSS, KB/conn\tPSS, KB/conn\t%d released, s\n", manyConns, manyWaiters)
	for _, name := range names {
		show := func(format string, of func(crowd) float64, b bar) string {
			return b.show(name, format, median(results[name], of))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", name,
			show("%.3f", func(c crowd) float64 { return c.served }, bar{most: 2}),
			show("%.1f", func(c crowd) float64 { return c.rss }, bar{most: 25}),
			show("%.1f", func(c crowd) float64 { return c.pss }, bar{most: 25}),
			show("%.3f", func(c crowd) float64 { return c.released }, bar{most: 0.5}))
	}
	for _, name := range names {
		if failed[name] != nil {
			fmt.Fprintf(w, "%s: %v\n", name, failed[name])
		}
	}
	return w.Flush()
}

// bar is what a figure should keep to: the most if there is one, else the least.
type bar struct{ most, least float64 }

// show formats a figure of a server, and whether it keeps to the bar. Torch and the floor have none to keep to.
func (b bar) show(server, format string, figure float64) string {
	s := fmt.Sprintf(format, figure)
	switch {
	case figure == 0:
		return "-"
	case server == torch || server == floor:
		return s
	case b.most > 0 && figure > b.most:
		return fmt.Sprintf("%s FAIL (<= %g)", s, b.most)
	case b.most == 0 && figure < b.least:
		return fmt.Sprintf("%s FAIL (>= %g)", s, b.least)
	}
	return s + " ok"
}

// median returns 0 for no figures.
func median[T any](of []T, value func(T) float64) float64 {
	if len(of) == 0 {
		return 0
	}
	values := make([]float64, len(of))
	for i, v := range of {
		values[i] = value(v)
	}
	slices.Sort(values)
	mid := len(values) / 2
	if len(values)%2 == 0 {
		return (values[mid-1] + values[mid]) / 2
	}
	return values[mid]
}
