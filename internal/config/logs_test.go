package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

func TestLoadLogs(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	template, none := "$rank ", ""
	for _, tt := range []struct {
		name string
		args string
		want Logs
	}{
		{"nothing", "", Logs{}},
		{"run", "job7", Logs{Run: "job7"}},
		{"flags around the run", "-f job7 --tail=5", Logs{Run: "job7", Follow: true, Tail: 5}},
		{"ranks", "--rank 0,g4-7 --local-rank 2", Logs{Ranks: workerlog.RankSet{{Global: true}, {Global: true, First: 4, Last: 7}}, LocalRanks: workerlog.RankSet{{First: 2, Last: 2}}}},
		{"stream", "--stream stderr", Logs{Stream: workerlog.Stderr}},
		{"attempt", "--attempt 1", Logs{Attempt: "1"}},
		{"one attempt", "--attempt=0.r3", Logs{Attempt: "0.r3"}},
		{"all attempts", "--attempt all", Logs{}},
		{"log dir", "--log_dir d", Logs{LogDir: "d", OnlyThere: true}},
		{"prefix", "--prefix=$rank\u00a0", Logs{Prefix: &template}},
		{"no prefix", "--no-prefix", Logs{Prefix: &none}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := strings.Fields(strings.ReplaceAll(tt.args, "\u00a0", "·"))
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "·", " ")
			}
			got, err := LoadLogs(args)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, got, cmpopts.IgnoreFields(Logs{}, "Pattern")); diff != "" || got.Pattern != nil {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	got, err := LoadLogs([]string{"--grep", "a|b"})
	if err != nil || got.Pattern.String() != "a|b" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestLoadLogsFolder checks that logs finds the launcher's log folder.
func TestLoadLogsFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	file := filepath.Join(t.TempDir(), "e.yaml")
	if err := os.WriteFile(file, []byte("log-dir: from-file\nmax-restarts: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, set := range map[string]func(){
		"from-file": func() {},
		"from-env":  func() { t.Setenv("PET_LOG_DIR", "from-env") },
	} {
		os.Unsetenv("PET_LOG_DIR")
		set()
		if got, err := LoadLogs([]string{"--config", file}); err != nil || got.LogDir != want || got.OnlyThere {
			t.Errorf("%+v, %v; want %s", got, err, want)
		}
	}
}

func TestLoadLogsRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	for args, want := range map[string]string{
		"--rank x":              `--rank=x: "x" is not a list of ranks`,
		"--local-rank g1":       "--local-rank=g1: names local ranks",
		"--stream out":          "--stream=out: must be one of stdout, stderr",
		"--grep (":              "--grep=(: error parsing regexp",
		"--attempt last":        "--attempt=last: must be all",
		"--tail -1":             "--tail=-1: must be between 0",
		"--no-prefix --prefix=": "cannot be combined",
		"a b":                   "b: elasticrun logs shows one run",
		"--folow":               "the nearest is --follow",
		"--list job7":           ": cannot be combined with a run, here job7",
		"--list --tail 3":       "--tail=3: cannot be combined with --list",
	} {
		_, err := LoadLogs(strings.Fields(args))
		if bad, ok := errors.AsType[*UsageError](err); !ok || !strings.Contains(bad.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	if _, err := LoadLogs([]string{"-h"}); !errors.Is(err, ErrHelp) {
		t.Error(err)
	}
}
