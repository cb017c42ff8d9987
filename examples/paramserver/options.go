package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// options are the flags of the user and the environment variables of the launcher.
type options struct {
	data            string // the file of images
	checkpointDir   string // created if missing
	checkpointEvery int    // in steps, 1 or more, like the next two
	reportEvery     int
	steps           int
	killAt          int // step of the first attempt in which killRank dies; 0 means never
	killRank        int

	rank      int
	worldSize int // 2 or more: the server and its trainers
	attempt   int // number of earlier starts of the workers
}

// define returns the flags that set o.
func (o *options) define() *flag.FlagSet {
	flags := flag.NewFlagSet("paramserver", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // exitCode prints errors in one line
	flags.StringVar(&o.checkpointDir, "checkpoint-dir", "",
		"`folder` of the checkpoint; a run continues from an existing one")
	flags.IntVar(&o.checkpointEvery, "checkpoint-every", 10, "`steps` from one checkpoint to the next")
	flags.IntVar(&o.reportEvery, "report-every", 10, "`steps` from one report to the next")
	flags.IntVar(&o.steps, "steps", 60, "`steps` to train")
	flags.StringVar(&o.data, "data", "testdata/digits/digits.csv.gz", "`file` of the images")
	flags.IntVar(&o.killAt, "kill-at", 0,
		"in the first attempt, one worker sends itself SIGKILL in this `step`; 0 means none")
	flags.IntVar(&o.killRank, "kill-rank", 0, "that worker's `rank`; 0 is the server")
	return flags
}

func usage() string {
	var o options
	var text strings.Builder
	fmt.Fprintln(&text, "usage: paramserver --checkpoint-dir DIR [options], started by elasticrun --no-python")
	flags := o.define()
	flags.SetOutput(&text)
	flags.PrintDefaults()
	return text.String()
}

// parse returns the options, an inputError, or [flag.ErrHelp] for --help.
func parse(args []string, getenv func(string) string) (options, error) {
	var o options
	err := o.readFlags(args)
	if err == nil {
		err = o.readEnvironment(getenv)
	}
	if err == nil {
		err = o.check()
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		err = inputError{err}
	}
	return o, err
}

func (o *options) readFlags(args []string) error {
	flags := o.define()
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is not an option; the program takes no other arguments", flags.Arg(0))
	}
	return nil
}

// readEnvironment reads rank, world size and attempt, which the launcher sets.
func (o *options) readEnvironment(getenv func(string) string) error {
	for _, v := range []struct {
		name     string
		to       *int
		standard string
	}{
		{"RANK", &o.rank, ""},
		{"WORLD_SIZE", &o.worldSize, ""},
		{"TORCHELASTIC_RESTART_COUNT", &o.attempt, "0"},
	} {
		value := getenv(v.name)
		if value == "" {
			value = v.standard
		}
		if value == "" {
			return fmt.Errorf("%s is not set: start this program with elasticrun --no-python", v.name)
		}
		number, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("%s is %q: want a number", v.name, value)
		}
		*v.to = number
	}
	return nil
}

func (o *options) check() error {
	if o.checkpointDir == "" {
		return errors.New("--checkpoint-dir is missing: name a folder for the checkpoint")
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"checkpoint-every", o.checkpointEvery}, {"report-every", o.reportEvery}, {"steps", o.steps}} {
		if n.value < 1 {
			return fmt.Errorf("--%s is %d: want 1 or more", n.name, n.value)
		}
	}
	switch {
	case o.worldSize < 2:
		return fmt.Errorf("WORLD_SIZE is %d: want 2 or more, for a server and trainers, such as --nproc-per-node 2",
			o.worldSize)
	case o.rank < 0 || o.rank >= o.worldSize:
		return fmt.Errorf("RANK is %d: want a rank from 0 to %d", o.rank, o.worldSize-1)
	case o.killAt < 0 || o.killAt > o.steps:
		return fmt.Errorf("--kill-at is %d: want a step from 1 to %d", o.killAt, o.steps)
	case o.killRank < 0 || o.killRank >= o.worldSize:
		return fmt.Errorf("--kill-rank is %d: want a rank from 0 to %d", o.killRank, o.worldSize-1)
	}
	return nil
}

// killIfRequested implements --kill-at. It acts only in the first attempt, because the next attempt must get past that
// step.
func (o *options) killIfRequested(step int, out io.Writer) error {
	if o.attempt > 0 || o.killAt != step || o.killRank != o.rank {
		return nil
	}
	printLine(out, "rank %d: sends itself SIGKILL in step %d", o.rank, step)
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		return fmt.Errorf("send SIGKILL to itself: %w", err)
	}
	select {} // the kernel may take a moment
}

// printLine prints a line for the user.
func printLine(out io.Writer, format string, args ...any) {
	fmt.Fprintf(out, format+"\n", args...)
}
