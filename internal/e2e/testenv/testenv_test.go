package testenv

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// recorder is a testing.TB that records how the test was first supposed to end, and continues.
type recorder struct {
	testing.TB

	ended string
	lines []string
}

func (r *recorder) end(how string) { r.ended = cmp.Or(r.ended, how) }

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.end("fatal: " + fmt.Sprintf(format, args...))
}

func (r *recorder) Skipf(format string, args ...any) {
	r.end("skip: " + fmt.Sprintf(format, args...))
}

func (r *recorder) Errorf(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func TestMissing(t *testing.T) {
	for _, tc := range []struct{ name, env, want string }{
		{name: "a person's run skips", env: "", want: "skip: needs a 3"},
		{name: "a pipeline fails", env: "1", want: "fatal: ELASTICRUN_REQUIRE_ALL=1, but: needs a 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("ELASTICRUN_REQUIRE_ALL", tc.env)
			r := &recorder{TB: t}
			if Missing(r, "needs a %d", 3); r.ended != tc.want {
				t.Errorf("Missing ended with %q, want %q", r.ended, tc.want)
			}
		})
	}
}

func TestRepeat(t *testing.T) {
	for _, tc := range []struct {
		env   string
		want  int
		long  bool
		ended string
	}{
		{env: "", want: 3},
		{env: "1", want: 50, long: true},
		{env: "0.1", want: 5, long: true},
		{env: "0.09", want: 5},
		{env: "0.001", want: 3},
		{env: "2.5", want: 125, long: true},
		{env: "0", ended: `fatal: ELASTICRUN_SOAK="0": want a positive number`},
		{env: "long", ended: `fatal: ELASTICRUN_SOAK="long": want a positive number`},
		{env: "NaN", ended: `fatal: ELASTICRUN_SOAK="NaN": want a positive number`},
		{env: "Inf", ended: `fatal: ELASTICRUN_SOAK="Inf": want a positive number`},
	} {
		t.Run(tc.env, func(t *testing.T) {
			t.Setenv("ELASTICRUN_SOAK", tc.env)
			r := &recorder{TB: t}
			got := Repeat(r, 3, 50)
			if r.ended != tc.ended {
				t.Errorf("Repeat ended with %q, want %q", r.ended, tc.ended)
			}
			if tc.ended == "" && got != tc.want {
				t.Errorf("Repeat(3, 50) = %d, want %d", got, tc.want)
			}
			if whole := Whole(r); tc.ended == "" && whole != (tc.env != "") {
				t.Errorf("Whole = %v", whole)
			}
			if long := Long(r); tc.ended == "" && long != tc.long {
				t.Errorf("Long = %v", long)
			}
		})
	}
}

// TestTorch runs the interpreters, and checks what a worker needs of one. make test runs only 2.14, which is in a torch
// root.
func TestTorch(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.13", "2.6", "2.14", Official} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			if version != "2.14" {
				InSoak(t)
			}
			python := Torch(t, version)
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), python, "-c",
				"import os, sys, torch.distributed as d\n"+
					"d.init_process_group('gloo', init_method='file://' + sys.argv[1], rank=0, world_size=1)\n"+
					"print(os.getpid(), os.getppid(), os.getcwd()); sys.exit(7)", dir+"/store")
			cmd.Dir = dir
			out, err := cmd.Output()
			if code := cmd.ProcessState.ExitCode(); code != 7 {
				t.Fatalf("exit code %d (%v), want the script's 7", code, err)
			}
			// The interpreter is the process that was started, not a child of it.
			want := fmt.Sprintf("%d %d %s\n", cmd.Process.Pid, os.Getpid(), dir)
			if diff := gocmp.Diff(want, string(out)); diff != "" {
				t.Errorf("pid, parent and folder (-want +got):\n%s", diff)
			}
		})
	}
}

// A pipeline fails without the official build too, unless it says that it does without.
func TestOfficialMissing(t *testing.T) {
	for _, tc := range []struct{ name, all, without, want string }{
		{name: "a person's run", want: "skip: needs torch official: no such file (make it)"},
		{name: "a pipeline", all: "1", want: "fatal: ELASTICRUN_REQUIRE_ALL=1, but: needs torch official: no such file (make it)"},
		{
			name: "a pipeline without it", all: "1", without: "1",
			want: "skip: needs torch official, and ELASTICRUN_WITHOUT_OFFICIAL=1: no such file (make it)",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("ELASTICRUN_REQUIRE_ALL", tc.all)
			t.Setenv("ELASTICRUN_WITHOUT_OFFICIAL", tc.without)
			r := &recorder{TB: t}
			if missingTorch(r, Official, errors.New("no such file (make it)")); r.ended != tc.want {
				t.Errorf("missingTorch ended with %q, want %q", r.ended, tc.want)
			}
		})
	}
}

func TestCheckTorch(t *testing.T) {
	python := t.TempDir() + "/python"
	for _, tc := range []struct{ name, script, want string }{
		{name: "right", script: "echo 2.6.0", want: "<nil>"},
		{name: "another", script: "echo 2.60.1", want: python + " has torch 2.60.1 (get it)"},
		{name: "none", script: "echo Traceback; echo ModuleNotFoundError: torch; exit 1", want: "run " + python + ": exit status 1: ModuleNotFoundError: torch (get it)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := os.WriteFile(python, []byte("#!/bin/sh\n"+tc.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			_, err := checkTorch("2.6", python, "get it")
			if diff := gocmp.Diff(tc.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBinary(t *testing.T) {
	if testing.Short() {
		t.Skip("links the binary")
	}
	path := Binary(t)
	if again := Binary(t); again != path {
		t.Errorf("second call returned %q, want %q", again, path)
	}
	if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("no program at %s: %v", path, err)
	}
}
