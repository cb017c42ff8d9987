package guard

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/elasticrun/elasticrun/internal/boottime"
	"github.com/elasticrun/elasticrun/pkg/procs"
)

// exitBystander is the exit code of a guard that killed a child which does not belong to the job.
const exitBystander = 99

// runGuarded is a small launcher. Its arguments change the guard: "nested" gives it a child of its own beforehand,
// "mute" a console that takes nothing, "impatient" short timeouts.
func runGuarded(args []string) {
	role, lifeline, err := OpenLifeline()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if role == RoleAgent {
		a := &scriptedAgent{lifeline: lifeline}
		a.serve()
		return
	}
	var bystander *exec.Cmd
	if role == RoleNone && slices.Contains(args, "nested") {
		bystander = exec.Command("sleep", "1000")
		if err := bystander.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	opts := Options{Lifeline: lifeline, OnDeadline: func(after time.Duration) {
		fmt.Fprintf(os.Stderr, "silent for %v\n", after)
		if slices.Contains(args, "mute") {
			select {}
		}
	}, OnSuspend: func(workers int) {
		fmt.Fprintf(os.Stderr, "suspended %d\n", workers)
		if slices.Contains(args, "mute") {
			select {}
		}
	}, OnContinue: func() { fmt.Fprintln(os.Stderr, "continued") }}
	if slices.Contains(args, "impatient") {
		opts.ExitTimeout, opts.ShortSweepTimeout = time.Second, 3*time.Second
	}
	r, err := Run(opts)
	code := r.Exit.ShellCode()
	if r.Record != nil {
		fmt.Fprintf(os.Stderr, "record %s\n", r.Record)
	}
	if r.ExitNotice != nil { // an address
		if c, err := net.Dial("tcp", strings.TrimRight(string(r.ExitNotice), " ")); err == nil {
			_ = c.Close()
		}
	}
	if err != nil || len(r.Stuck) > 0 {
		fmt.Fprintln(os.Stderr, r.Exit, err, r.Stuck)
		code = 1
	}
	if bystander != nil {
		if bystander.Process.Signal(syscall.SIGTERM) != nil || bystander.Wait().Error() != "signal: terminated" {
			code = exitBystander
		}
	}
	lifeline.AnnounceExit(code)
	os.Exit(code)
}

// scriptedAgent is an agent that reads one command a line and answers each with one line.
type scriptedAgent struct {
	lifeline *Lifeline
	sup      *procs.Supervisor
	suspend  procs.Suspension
	group    *procs.Group
	renew    *time.Ticker

	suspended bool
}

// serve executes commands. It exits when the guard has died, as an agent does.
func (a *scriptedAgent) serve() {
	lines := make(chan string)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
	}()
	for {
		select {
		case line := <-lines:
			word, rest, _ := strings.Cut(line, " ")
			answer, err := a.do(word, rest)
			if err != nil {
				answer = "error: " + err.Error()
			}
			fmt.Println(answer)
		case r := <-a.lifeline.SuspendRequests():
			if r.Suspend {
				a.suspended = true
				a.lifeline.ConfirmSuspended(r, a.suspend.Suspend())
				continue
			}
			fmt.Fprintf(os.Stderr, "agent continues after %d kills\n", len(a.lifeline.killed))
			a.suspend.Resume()
			a.suspended = false
		case <-a.lifeline.Broken():
			if a.group != nil {
				_ = a.group.Stop(procs.StopPolicy{Signal: syscall.SIGKILL})
			}
			os.Exit(1)
		}
	}
}

func (a *scriptedAgent) do(word, rest string) (answer string, err error) {
	switch word {
	case "pid":
		return fmt.Sprint(os.Getpid()), nil
	case "start": // SCRIPT
		return "ok", a.start(rest)
	case "exit": // how the worker ended
		e := <-a.group.Exits()
		return fmt.Sprintf("%v, by us: %v", e, e.Stopped), nil
	case "stop":
		return "ok", a.group.Stop(procs.StopPolicy{Signal: syscall.SIGKILL})
	case "notice": // ADDRESS, or nothing to withdraw it
		return "ok", a.lifeline.SetExitNotice([]byte(rest))
	case "record": // TEXT, or nothing to remove it
		return "ok", a.lifeline.SetRecord([]byte(rest))
	case "records": // it answers, and continues to set records
		go func() {
			for i := 0; ; i++ {
				_ = a.lifeline.SetRecord(bytes.Repeat([]byte{'a' + byte(i%26)}, 1+i%MaxRecord))
			}
		}()
		return "ok", nil
	case "storm": // ADDRESS; it answers, and continues to set notices
		err := a.lifeline.SetExitNotice([]byte(rest))
		go func() {
			for i := 0; ; i++ { // spaces make notices of all lengths
				_ = a.lifeline.SetExitNotice([]byte(rest + strings.Repeat(" ", i%maxExitNotice/2)))
			}
		}()
		return "ok", err
	case "deadline", "renew": // DURATION; renew repeats it
		in, err := time.ParseDuration(rest)
		deadline := func() {
			if in == 0 {
				a.lifeline.SetDeadline(0)
				return
			}
			a.lifeline.SetDeadline(boottime.Now() + in)
		}
		deadline()
		if word == "renew" {
			a.renew = time.NewTicker(in / 20)
			go func() {
				for range a.renew.C {
					deadline()
				}
			}()
		}
		return "ok", err
	case "await": // the guard, for DURATION; when it must wait it answers "waits" first
		in, err := time.ParseDuration(rest)
		if err != nil {
			return "", err
		}
		ctx, cancel := context.WithTimeout(context.Background(), in)
		defer cancel()
		answer = "at once"
		waiting := func() {
			fmt.Println("waits")
			answer = "in the end"
		}
		if err := a.lifeline.AwaitGuard(ctx, waiting); err != nil {
			answer = "no"
		}
		return answer, nil
	case "sweep":
		procs.Sweep(10 * time.Second)
		return "ok", nil
	case "suspended":
		return fmt.Sprint(a.suspended), nil
	case "passed":
		return fmt.Sprint(a.lifeline.DeadlinePassed()), nil
	case "killed": // does the guard report a kill within DURATION?
		in, err := time.ParseDuration(rest)
		select {
		case <-a.lifeline.killed:
			return "yes", err
		case <-time.After(in):
			return "no", err
		}
	case "end": // announce the exit, and exit
		a.lifeline.AnnounceExit(7)
		os.Exit(7)
	case "read": // FILE, which may hang
		go func() { _, _ = os.ReadFile(rest) }()
		return "ok", nil
	}
	return "", fmt.Errorf("unknown command %q", word)
}

func (a *scriptedAgent) start(script string) (err error) {
	if a.sup == nil {
		if a.sup, err = procs.NewSupervisor(procs.Options{Suspension: &a.suspend}); err != nil {
			return err
		}
	}
	a.group, err = a.sup.Start([]procs.Spec{{Argv: []string{"sh", "-c", script}, Env: os.Environ()}}, nil)
	return err
}
