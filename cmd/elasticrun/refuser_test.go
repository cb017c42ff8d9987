package main

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// refuser is a process that runs many command lines, one after the other, without a guard. The scripts have more than
// two hundred command lines that are refused. To start two processes with the race detector for each would cost most
// of the scripts' time. make soak does start them.
type refuser struct {
	mu  sync.Mutex
	env string // the file through which a script's environment comes
	cmd *exec.Cmd
	in  io.Closer
	enc *gob.Encoder
	dec *gob.Decoder
}

// refuserName is the name by which the test binary is a refuser.
const refuserName = "refuser"

type refuserRequest struct {
	Dir       string
	Env, Args []string
}

type refuserReply struct {
	Code           int
	Stdout, Stderr string
}

// newRefuser starts a refuser, which ends with the test. It returns nil if the test must start real processes.
func newRefuser(t *testing.T) *refuser {
	t.Helper()
	if testenv.Whole(t) {
		return nil
	}
	r := &refuser{env: filepath.Join(t.TempDir(), "env"), cmd: exec.Command(refuserName)}
	r.cmd.Stderr = os.Stderr
	in, out := testenv.StartWithPipes(t, r.cmd)
	r.in, r.enc, r.dec = in, gob.NewEncoder(in), gob.NewDecoder(out)
	t.Cleanup(func() {
		_ = in.Close()
		if err := r.cmd.Wait(); err != nil {
			t.Errorf("the refuser: %v", err)
		}
	})
	return r
}

// exec is scriptExec for an elasticrun that is refused. If it is not, it may run forever, so the refuser is killed.
func (r *refuser) exec(ts *testscript.TestScript, args []string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	ts.Check(ts.Exec("sh", "-c", `exec env -0 >"$1"`, "sh", r.env))
	env, err := os.ReadFile(r.env)
	ts.Check(err)
	vars := strings.Split(strings.TrimSuffix(string(env), "\x00"), "\x00")
	bound := time.AfterFunc(awaitBound, func() { _ = r.cmd.Process.Kill() })
	defer bound.Stop()
	ts.Check(r.enc.Encode(refuserRequest{Dir: ts.MkAbs("."), Env: vars, Args: args[1:]}))
	var reply refuserReply
	if err := r.dec.Decode(&reply); err != nil {
		ts.Fatalf("the refuser did not refuse %q: %v", args, err)
	}
	// This makes the reply the script's last stdout and stderr.
	return scriptExec(ts, []string{
		"sh", "-c", `printf %s "$1"; printf %s "$2" >&2; exit "$3"`, "sh", reply.Stdout, reply.Stderr, strconv.Itoa(reply.Code),
	})
}

// refuse is the main function of a refuser.
func refuse() {
	dec, enc := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.Stdout)
	for {
		var request refuserRequest
		if dec.Decode(&request) != nil {
			return
		}
		reply, err := request.run()
		if err == nil {
			err = enc.Encode(reply)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "refuser:", err)
			os.Exit(1)
		}
	}
}

// run does what function run does, without a guard.
func (r refuserRequest) run() (reply refuserReply, err error) {
	os.Clearenv()
	for _, v := range r.Env {
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil {
			return reply, err
		}
	}
	if err := os.Chdir(r.Dir); err != nil {
		return reply, err
	}
	var wait sync.WaitGroup
	defer func(stdout, stderr *os.File) { os.Stdout, os.Stderr = stdout, stderr }(os.Stdout, os.Stderr)
	capture := func(f **os.File, text *string) error {
		read, write, err := os.Pipe()
		if err != nil {
			return err
		}
		*f = write
		wait.Go(func() {
			var all bytes.Buffer
			_, _ = io.Copy(&all, read)
			_ = read.Close()
			*text = all.String()
		})
		return nil
	}
	if err := capture(&os.Stdout, &reply.Stdout); err != nil {
		return reply, err
	}
	if err := capture(&os.Stderr, &reply.Stderr); err != nil {
		return reply, err
	}
	done := false
	if !isSubcommand(r.Args) {
		reply.Code, done = execSrun(r.Args)
	}
	if !done {
		reply.Code = execute(r.Args, nil)
	}
	_, _ = os.Stdout.Close(), os.Stderr.Close()
	wait.Wait()
	return reply, nil
}
