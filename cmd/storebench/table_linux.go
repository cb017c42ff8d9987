package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// table holds the results of each round.
type table struct {
	names   []string
	rows    []row
	results map[place][]loadResult // one per round
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
			at := func(of func(loadResult) float64) float64 { return median(t.results[r.of(name)], of) }
			fmt.Fprintf(w, "%d\t%s\t%s\t%.2f\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f\t\n", r.conns, r.op.name, name,
				at(loadResult.cpuOf), at(loadResult.rateOf), at(func(c loadResult) float64 { return c.p50 }), at(loadResult.p99Of),
				at(func(c loadResult) float64 { return c.client }), at(func(c loadResult) float64 { return c.others }))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if all, busy := t.disturbed(); busy > 0 {
		fmt.Fprintf(out, "%d of %d measurements were disturbed: others used more than %g CPUs.\n", busy, all, maxOtherCPUs)
	}
	return t.printRatios(out)
}

// maxOtherCPUs is how many CPUs other processes may use without a remark.
const maxOtherCPUs = 0.2

func (t *table) disturbed() (all, busy int) {
	for _, results := range t.results {
		for _, c := range results {
			all++
			if c.others > maxOtherCPUs {
				busy++
			}
		}
	}
	return all, busy
}

func (c loadResult) cpuOf() float64  { return c.cpu }
func (c loadResult) rateOf() float64 { return c.rate }
func (c loadResult) p99Of() float64  { return c.p99 }

// printRatios compares every server with torch's and the floor. The ratios of the floor show what a target demands.
func (t *table) printRatios(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nconns\top\tserver\tCPU/torch\tops/torch\tops/floor\tp99/torch")
	for _, r := range t.rows {
		for _, name := range t.names {
			if name == torch {
				continue
			}
			compare := func(other string, of func(loadResult) float64, b target) string {
				ratios := divide(t.results[r.of(name)], t.results[r.of(other)], of)
				return b.show(name, "%.2f", median(ratios, func(r float64) float64 { return r }))
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", r.conns, r.op.name, name,
				compare(torch, loadResult.cpuOf, target{most: r.op.cpu}), compare(torch, loadResult.rateOf, target{least: 0.95}),
				compare(floor, loadResult.rateOf, target{least: 0.85}), compare(torch, loadResult.p99Of, target{most: 1.5}))
		}
	}
	return w.Flush()
}

// divide returns the ratio of each round, or none if one of the servers was not measured.
func divide(results, others []loadResult, of func(loadResult) float64) []float64 {
	var ratios []float64
	for i := range min(len(results), len(others)) {
		ratios = append(ratios, of(results[i])/of(others[i]))
	}
	return ratios
}

func printScales(out io.Writer, names []string, results map[string][]scale, failed map[string]error) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nserver\t%d served, s\tRSS, KB/conn\tPSS, KB/conn\t%d released, s\n", manyConns, manyWaiters)
	for _, name := range names {
		show := func(format string, of func(scale) float64, b target) string {
			return b.show(name, format, median(results[name], of))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", name,
			show("%.3f", func(c scale) float64 { return c.served }, target{most: 2}),
			show("%.1f", func(c scale) float64 { return c.rss }, target{most: 25}),
			show("%.1f", func(c scale) float64 { return c.pss }, target{most: 25}),
			show("%.3f", func(c scale) float64 { return c.released }, target{most: 0.5}))
	}
	for _, name := range names {
		if failed[name] != nil {
			fmt.Fprintf(w, "%s: %v\n", name, failed[name])
		}
	}
	return w.Flush()
}

// target is the limit for a figure: most if it is set, otherwise least.
type target struct{ most, least float64 }

// show formats a figure of a server and whether it meets the target. Servers of torch and the floor have no targets.
func (b target) show(server, format string, figure float64) string {
	s := fmt.Sprintf(format, figure)
	switch {
	case figure == 0:
		return "-"
	case server == torch || server == libuv || server == floor:
		return s
	case b.most > 0 && figure > b.most:
		return fmt.Sprintf("%s FAIL (<= %g)", s, b.most)
	case b.most == 0 && figure < b.least:
		return fmt.Sprintf("%s FAIL (>= %g)", s, b.least)
	}
	return s + " ok"
}

// median returns 0 for an empty list.
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
