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

// options is what a user chooses on the command line, and what the launcher tells in the environment.
type options struct {
	data            string // the file of images
	checkpointDir   string // made if it is not there
	checkpointEvery int    // steps, 1 or more, as the two below
	reportEvery     int
	steps           int
	killAt          int // in the first attempt killRank dies in this step; 0: nobody does
	killRank        int

	rank      int
	worldSize int // 2 or more: the server and its trainers
	attempt   int // how often the workers were started before
}

// define returns the flags that write into o.
func (o *options) define() *flag.FlagSet {
	flags := flag.NewFlagSet("paramserver", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is told in one line, by exitCode
	flags.StringVar(&o.checkpointDir, "checkpoint-dir", "", "`folder` of the checkpoint; a run goes on from what is there")
	flags.IntVar(&o.checkpointEvery, "checkpoint-every", 10, "`steps` from one checkpoint to the next")
	flags.IntVar(&o.reportEvery, "report-every", 10, "`steps` from one report to the next")
	flags.IntVar(&o.steps, "steps", 60, "`steps` to train")
	flags.StringVar(&o.data, "data", "testdata/digits/digits.csv.gz", "`file` of the images")
	flags.IntVar(&o.killAt, "kill-at", 0, "in the first attempt, one worker sends itself SIGKILL in this `step`; 0: none does")
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

// parse returns the options, an inputError or, for --help, [flag.ErrHelp].
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
		return fmt.Errorf("%q is no option, and nothing else is wanted", flags.Arg(0))
	}
	return nil
}

// readEnvironment takes the worker's place in the job from where the launcher has told it.
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
		return fmt.Errorf("WORLD_SIZE is %d: a server and its trainers are 2 workers or more, as of --nproc-per-node 2", o.worldSize)
	case o.rank < 0 || o.rank >= o.worldSize:
		return fmt.Errorf("RANK is %d: want a rank from 0 to %d", o.rank, o.worldSize-1)
	case o.killAt < 0 || o.killAt > o.steps:
		return fmt.Errorf("--kill-at is %d: want a step from 1 to %d", o.killAt, o.steps)
	case o.killRank < 0 || o.killRank >= o.worldSize:
		return fmt.Errorf("--kill-rank is %d: want a rank from 0 to %d", o.killRank, o.worldSize-1)
	}
	return nil
}

// dieIfTold carries out --kill-at. Only in the first attempt: the next one shall get past that step.
func (o *options) dieIfTold(step int, out io.Writer) error {
	if o.attempt > 0 || o.killAt != step || o.killRank != o.rank {
		return nil
	}
	say(out, "rank %d: sends itself SIGKILL in step %d", o.rank, step)
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		return fmt.Errorf("send SIGKILL to itself: %w", err)
	}
	select {} // the kernel may take a moment
}

// say prints a line for the user.
func say(out io.Writer, format string, args ...any) {
	fmt.Fprintf(out, format+"\n", args...)
}
