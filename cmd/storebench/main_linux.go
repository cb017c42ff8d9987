// Storebench measures the store's server beside torch's own and a floor, in one run.
//
//	go build ./cmd/storebench && ./storebench [-rounds 5] [-seconds 2] [-only ours,torch,floor] [-server NAME=COMMAND]...
//
// Each server is a process of its own: ours, the TCPStore server of torch 2.14 if scripts/torch-root.sh has made its
// root, and the floor, an epoll loop in C that parses nothing and answers as many bytes as are due. The load
// client keeps 64 or 512 connections busy: each sends an operation, awaits its answer, and sends the next.
//
//	add     ADD
//	set     SET and a CHECK of the same key in one write: a SET alone has no answer
//	get     WAIT and GET of the same key in one write
//	get2    WAIT, and GET when that is answered, as torch's client does it: two trips, so twice the floor
//
// A round puts every server under every load, the servers one right after the other and in another order each
// round. What is shown is the median of the rounds; a ratio is the median of each round's own ratio. Absolute
// figures mean little on a busy machine: look at the ratios, and at how many CPUs others used meanwhile. Where a
// server has to share a CPU with the client, an operation costs both about half, since neither wakes another CPU; so a
// machine of two must be quiet. taskset -c 0 ./storebench keeps all on one, and varies less.
//
// Then every server is started anew for many connections: 5,000 begun at once, their memory, and 10,000 waiters.
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

// options are those of the command line.
type options struct {
	rounds  int
	conns   string
	only    string
	ops     string
	crowd   bool
	load    load
	servers map[string][]string // more of them, or others than usual
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "serve" {
		exit(serve(os.Stdin, os.Stdout))
	}
	o := options{servers: map[string][]string{}, load: load{warm: 200 * time.Millisecond}}
	seconds := flag.Float64("seconds", 2, "how long each server is under each load, in a round")
	flag.IntVar(&o.rounds, "rounds", 5, "number of rounds")
	flag.StringVar(&o.conns, "conns", "64,512", "numbers of connections")
	flag.StringVar(&o.only, "only", "", "the servers to measure, all if empty")
	flag.StringVar(&o.ops, "ops", "add,set,get,get2", "the operations to measure")
	flag.BoolVar(&o.crowd, "crowd", true, "measure many connections too")
	flag.IntVar(&o.load.threads, "threads", 1, "threads of the load client")
	flag.Func("server", "a server more, or another for ours, as NAME=COMMAND; its first line of output ends with its port", func(v string) error {
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
	if err := raiseFiles(); err != nil {
		exit(err)
	}
	exit(bench(ctx, o))
}

// raiseFiles lets this process and the servers open as many files as they may. Go does that by itself, but gives
// what it starts the old limit unless the new one was asked for.
func raiseFiles() error {
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
	if o.crowd {
		return crowds(ctx, names, found)
	}
	return nil
}

// order puts the servers' names in that of the tables.
func order(found map[string][]string) []string {
	var names []string
	for name := range found {
		names = append(names, name)
	}
	last := []string{torch, floor}
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

// rows returns a load for each of the numbers of connections and each of the operations.
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

// loads runs the rounds. All servers live from the first to the last, idle but for their turns.
func loads(ctx context.Context, o options, names []string, commands map[string][]string, rows []row) (*table, error) {
	t := &table{names: names, rows: rows, cells: map[place][]cell{}}
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
				t.cells[r.of(s.name)] = append(t.cells[r.of(s.name)], c)
			}
		}
	}
	return t, nil
}

// crowds measures and shows what many connections do to each server. One that cannot serve them is said so.
func crowds(ctx context.Context, names []string, commands map[string][]string) error {
	const times = 3
	results := map[string][]crowd{}
	failed := map[string]error{}
	for range times {
		for _, name := range names {
			c, err := measureCrowd(ctx, name, commands[name])
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
	return printCrowds(os.Stdout, names, results, failed)
}
