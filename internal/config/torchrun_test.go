package config

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPrintCompletion(t *testing.T) {
	clean(t)
	for _, line := range []string{"--print-completion zsh", "--print_completion=zsh s.py", "--nnodes=bad --print=zsh"} {
		_, err := load(line)
		if request, ok := errors.AsType[*CompletionRequest](err); !ok || request.Shell != "zsh" {
			t.Errorf("%s: got %v, want the request for zsh", line, err)
		}
	}
	for line, want := range map[string]string{
		"--print-completion=sh":    "--print-completion=sh: must be one of bash, zsh, tcsh, fish, powershell",
		"--print-completion":       "--print-completion: needs a value: --print-completion=SHELL",
		"--print-completion=":      `--print-completion="": must be one of bash, zsh, tcsh, fish, powershell`,
		"s.py --print-completion=": "",
	} {
		if _, err := load(line); want != "" && (err == nil || err.Error() != want) || want == "" && err != nil {
			t.Errorf("%s: got %v, want %s", line, err, want)
		}
	}
}

// As with torchrun, the older variable replaces an empty template from any source.
func TestPrefixTemplate(t *testing.T) {
	const older = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
	for _, tt := range []struct {
		name, line string
		env        []string
		want       string
		source     string
	}{
		{"default", "s.py", nil, "", "default"},
		{"older variable", "s.py", []string{older + "=old"}, "old", older},
		{"variable", "s.py", []string{older + "=old", "PET_LOG_LINE_PREFIX_TEMPLATE=new"}, "new", "PET_LOG_LINE_PREFIX_TEMPLATE"},
		{"empty variable", "s.py", []string{older + "=old", "PET_LOG_LINE_PREFIX_TEMPLATE="}, "old", older},
		{"flag", "--log-line-prefix-template=flag s.py", []string{older + "=old"}, "flag", "flag"},
		{"both spellings, abbreviated", "--log_line_prefix_t=flag s.py", nil, "flag", "flag"},
		{"older name", "--log_line_prefix=flag s.py", []string{"ELASTICRUN_LOG_LINE_PREFIX=own"}, "flag", "flag"},
		{"older name's variable", "s.py", []string{"ELASTICRUN_LOG_LINE_PREFIX=own"}, "own", "ELASTICRUN_LOG_LINE_PREFIX"},
		{"empty flag", "--log-line-prefix-template= s.py", []string{older + "=old"}, "old", older},
		{"all empty", "--log-line-prefix-template= s.py", []string{older + "="}, "", "flag"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clean(t)
			setEnv(t, tt.env...)
			c, err := load(tt.line)
			if err != nil {
				t.Fatal(err)
			}
			source := settingNamed(c, "log-line-prefix-template").Source.String()
			if c.LogLinePrefix != tt.want || source != tt.source {
				t.Errorf("got %q from %s, want %q from %s", c.LogLinePrefix, source, tt.want, tt.source)
			}
		})
	}
}

// A config file may use the older name of a flag, but not beside the new one.
func TestAliasInConfigFile(t *testing.T) {
	values, err := parseFile("file", []byte("log_line_prefix: own\n"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"log-line-prefix-template": "own"}, values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	if _, err := parseFile("file", []byte("log-line-prefix: a\nlog-line-prefix-template: b\n")); err == nil {
		t.Error("both names are accepted")
	}
}

// PET_EXIT_BARRIER_TIMEOUT and the --use-env of torch.distributed.launch are accepted.
func TestOfOtherLaunchers(t *testing.T) {
	clean(t)
	t.Setenv("TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT", "7")
	t.Setenv("PET_EXIT_BARRIER_TIMEOUT", "5")
	c, err := load("--use_env s.py")
	if err != nil {
		t.Fatal(err)
	}
	if c.ExitBarrierTimeout != 5*time.Second || !c.ExitBarrierGiven {
		t.Errorf("the exit barrier has %v, want 5s; given: %v", c.ExitBarrierTimeout, c.ExitBarrierGiven)
	}
	want := []string{"--use-env: is always on: each worker has its local rank in LOCAL_RANK and gets no --local-rank argument"}
	if diff := cmp.Diff(want, c.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
