// Storebench measures the store server beside torch's own and a floor, in one run.
//
//	go build ./cmd/storebench
//	./storebench [-rounds 5] [-seconds 2] [-only ours,torch,libuv,floor] [-server NAME=COMMAND]...
//
// Each server is a process of its own: ours; the TCPStore server of torch 2.14 without libuv and that of the official
// build with libuv, if scripts/torch-root.sh and scripts/torch-official.sh have installed them; and the floor, an epoll
// loop in C that parses nothing and sends as many bytes as the reply has. The load client keeps 64 or 512 connections
// busy: each sends an operation, waits for its reply, and sends the next.
//
//	add     ADD
//	set     SET and a CHECK of the same key in one write: a SET alone has no reply
//	get     WAIT and GET of the same key in one write
//	get2    WAIT, and GET after its reply, as torch's client does: two round trips, so twice the floor
//
// A round puts every server under every load, the servers one after another and in a different order each round. The
// tables show the median of the rounds; a ratio is the median of the ratios of each round. Absolute figures mean
// little on a busy machine: compare the ratios, and the CPUs that other processes used meanwhile. If a server shares a
// CPU with the client, an operation costs both about half, because neither wakes another CPU. A machine with two CPUs
// must therefore be quiet. taskset -c 0 ./storebench keeps everything on one CPU and varies less.
//
// Then every server is started anew for many connections: 5,000 at once, their memory, and 10,000 waiters.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// options are the command line flags.
type options struct {
	rounds  int
	conns   string
	only    string
	ops     string
	scale   bool
	load    load
	servers map[string][]string // further servers, or replacements of the usual ones
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "serve" {
		exit(serve(os.Stdin, os.Stdout))
	}
	o := options{servers: map[string][]string{}, load: load{warm: 200 * time.Millisecond}}
	seconds := flag.Float64("seconds", 2, "`seconds` of each load on each server per round")
	flag.IntVar(&o.rounds, "rounds", 5, "number of rounds")
	flag.StringVar(&o.conns, "conns", "64,512", "numbers of connections")
	flag.StringVar(&o.only, "only", "", "the servers to measure (default all)")
	flag.StringVar(&o.ops, "ops", "add,set,get,get2", "the operations to measure")
	flag.BoolVar(&o.scale, "crowd", true, "also measure many connections")
	flag.IntVar(&o.load.threads, "threads", 1, "threads of the load client")
	const serverUsage = "add or replace a server, as `NAME=COMMAND`; its first line of output must end with its port"
	flag.Func("server", serverUsage, func(v string) error {
		name, command, ok := strings.Cut(v, "=")
		if !ok || strings.TrimSpace(command) == "" {
			return fmt.Errorf("want NAME=COMMAND")
		}
		o.servers[name] = strings.Fields(command)
		return nil
	})
	flag.Parse()
	o.load.measured = time.Duration(*seconds * float64(time.Second))
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := raiseFileLimit(); err != nil {
		exit(err)
	}
	exit(bench(ctx, o))
}

// raiseFileLimit lets this process and the servers open as many files as the hard limit allows. Go raises the limit
// for itself, but gives its children the old one unless the new one is set explicitly.
func raiseFileLimit() error {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	files.Cur = files.Max
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &files)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "storebench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func bench(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "storebench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	found, err := commands(ctx, dir)
	if err != nil {
		return err
	}
	maps.Copy(found, o.servers)
	names := order(found)
	if o.only != "" {
		names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(strings.Split(o.only, ","), name) })
	}
	if len(names) == 0 {
		return fmt.Errorf("no server among %q to measure", o.only)
	}
	conns, err := numbers(o.conns)
	if err != nil {
		return err
	}
	if o.rounds > 0 {
		t, err := loads(ctx, o, names, found, rows(conns, strings.Split(o.ops, ",")))
		if err != nil {
			return err
		}
		if err := t.print(os.Stdout); err != nil {
			return err
		}
	}
	if o.scale {
		return measureScales(ctx, names, found)
	}
	return nil
}

// order sorts the names of the servers for the tables.
func order(found map[string][]string) []string {
	var names []string
	for name := range found {
		names = append(names, name)
	}
	last := []string{torch, libuv, floor}
	slices.SortFunc(names, func(a, b string) int {
		if d := slices.Index(last, a) - slices.Index(last, b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return names
}

func numbers(list string) ([]int, error) {
	var found []int
	for s := range strings.SplitSeq(list, ",") {
		var n int
		if _, err := fmt.Sscan(s, &n); err != nil {
			return nil, fmt.Errorf("numbers of connections %q: %w", list, err)
		}
		found = append(found, n)
	}
	return found, nil
}

// rows returns one row for each number of connections and each operation.
func rows(conns []int, ops []string) []row {
	var all []row
	for _, n := range conns {
		for _, op := range operations() {
			if slices.Contains(ops, op.name) {
				all = append(all, row{n, op})
			}
		}
	}
	return all
}

// loads runs the rounds. All servers run from the first round to the last, and are idle except in their turns.
func loads(ctx context.Context, o options, names []string, commands map[string][]string, rows []row) (*table, error) {
	t := &table{names: names, rows: rows, results: map[place][]loadResult{}}
	servers, err := startAll(ctx, names, commands)
	if err != nil {
		return nil, err
	}
	defer stopAll(servers)
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, o.rounds)
		turns := append(slices.Clone(servers[round%len(servers):]), servers[:round%len(servers)]...)
		for _, r := range rows {
			o.load.conns = r.conns
			for _, s := range turns {
				c, err := measure(ctx, s, r.op, o.load)
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				if err != nil {
					return nil, fmt.Errorf("%s, %s, %d connections: %w", s.name, r.op.name, r.conns, err)
				}
				t.results[r.of(s.name)] = append(t.results[r.of(s.name)], c)
			}
		}
	}
	return t, nil
}

// measureScales measures every server with many connections and prints the results and the failures.
func measureScales(ctx context.Context, names []string, commands map[string][]string) error {
	const times = 3
	results := map[string][]scale{}
	failed := map[string]error{}
	for range times {
		for _, name := range names {
			c, err := measureScale(ctx, name, commands[name])
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				failed[name] = err
				continue
			}
			results[name] = append(results[name], c)
		}
	}
	return printScales(os.Stdout, names, results, failed)
}
