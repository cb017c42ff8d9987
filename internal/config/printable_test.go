package config

import (
	"os"
	"strings"
	"testing"
	"unicode"
)

// nasty is text that would move a cursor, change a title, change the direction of writing, or add a line.
const nasty = "\x1b[2Jx\x9b\u202e\u2066\nsecond\r\x07\u200f"

// TestErrorsArePrintable checks that for any input an error or warning is one line that does nothing to a terminal.
func TestErrorsArePrintable(t *testing.T) {
	check := func(t *testing.T, text string) {
		t.Helper()
		if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("not printable: %q", text)
		}
	}
	try := func(t *testing.T, args ...string) {
		t.Helper()
		for _, more := range [][]string{{"s.py"}, {"--nnodes=2", "s.py"}} {
			c, err := Load(append(args, more...), machine{cpus: 1})
			if err != nil {
				check(t, err.Error())
				continue
			}
			for _, w := range c.Warnings {
				check(t, w)
			}
		}
	}
	for _, f := range Flags() {
		if f.Kind == KindAction {
			continue
		}
		for _, value := range []string{nasty, "a=" + nasty, "timeout=" + nasty + ",b=c", "SIGTERM," + nasty, nasty + ":1"} {
			t.Run(f.Name+"|"+value, func(t *testing.T) {
				clean(t)
				if f.takesValue() {
					try(t, "--"+f.Name+"="+value)
				} else {
					_, err := Load([]string{"--" + f.Name + "=" + value}, machine{})
					check(t, err.Error())
				}
				for _, env := range f.Env {
					t.Setenv(env, value)
					try(t)
					if err := os.Unsetenv(env); err != nil {
						t.Fatal(err)
					}
				}
				if f.CommandLineOnly {
					return
				}
				quoted := strings.NewReplacer("\x1b", `\e`, "\x9b", `\x9b`, "\n", `\n`, "\r", `\r`, "\x07", `\a`).Replace(value)
				write(t, configFileName, f.Name+`: "`+quoted+`"`)
				try(t)
			})
		}
	}
	for _, args := range [][]string{{"--" + nasty, "s.py"}, {"-" + nasty, "s.py"}, {"--run-path", nasty}, {"--log-dir"}, {"--log-dir", "-" + nasty}} {
		clean(t)
		try(t, args...)
	}
	for _, text := range []string{`"` + `\e[2J\u202e` + `": 1`, "? \u202ea\n: 1", "a: 1\n\u202e: 2\n\u202e: 3", "a: *\u202e", "\u202e", "role: \u2066\n  - x"} {
		clean(t)
		write(t, configFileName, text)
		try(t)
	}
	for _, name := range []string{"MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_NODELIST", "SLURM_NODEID", "SLURM_NNODES", "SLURMD_NODENAME", "SLURM_JOB_ID"} {
		clean(t)
		setEnv(
			t,
			"SLURM_JOB_ID=1",
			"SLURM_NNODES=2",
			"SLURM_STEP_ID=0",
			"SLURM_NODEID=0",
			"SLURM_JOB_NODELIST=a,b",
			"SLURM_STEP_NODELIST=a,b",
		)
		t.Setenv(name, nasty)
		try(t)
		if _, err := LoadStatus(nil); err != nil {
			check(t, err.Error())
		}
	}
	for _, args := range [][]string{{"--grep=(" + nasty}, {"--rank=" + nasty}, {"a", nasty}, {"--attempt=" + nasty}, {"--" + nasty}} {
		clean(t)
		if _, err := LoadLogs(args); err == nil {
			t.Errorf("%q is taken", args)
		} else {
			check(t, err.Error())
		}
	}
}
