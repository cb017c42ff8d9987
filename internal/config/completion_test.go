package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestComplete(t *testing.T) {
	for _, tt := range []struct {
		line  string // the cursor is at its end
		words string
		files bool
		dirs  bool
	}{
		{line: "", words: "explain doctor status stacks ps stop logs store secret simulate completion version", files: true},
		{line: "sto", words: "stop store"},
		{line: "tr", files: true},
		{line: "--log", words: "--log-dir --log-line-prefix-template --log-max-size --log-max-files --logs-specs --log-format --log-level"},
		{line: "--rdzv_", words: "--rdzv_backend --rdzv_endpoint --rdzv_id --rdzv_conf --rdzv_secret_file"},
		{line: "--rdzv-backend ", words: "c10d etcd static"},
		{line: "--rdzv-backend=s", words: "static"},
		{line: "--rdzv_b=s", words: "static"},
		{line: "--nproc ", words: "auto cpu gpu xpu"},
		{line: "--nproc-per-node 2 --grow ne", words: "next-restart never"},
		{line: "-r ", words: "0 1 2 3"},
		{line: "-mr ", words: "0 1 2 3"},
		{line: "-m ", files: true},
		{line: "-mr3 ", files: true},
		{line: "-r=", words: "0 1 2 3"},
		{line: "--config ", files: true},
		{line: "--report=", files: true},
		{line: "--log-dir ", dirs: true},
		{line: "--log-dir=", dirs: true},
		{line: "--rdzv-endpoint ", words: "local"},
		{line: "--rdzv-id "},
		{line: "--nonsense=x"},
		{line: "--nonsense tr", files: true},
		{line: "--nproc-per-node 2 ", files: true},
		{line: "--nproc-per-node 2 sto", files: true},
		{line: "--standalone --", words: "all"},
		{line: "train.py ", files: true},
		{line: "train.py --", files: true},
		{line: "train.py --rdzv-backend ", files: true},
		{line: "-- ", files: true},
		{line: "--tee --gr", words: "--grow"},
		{line: "store --da", words: "--data-dir"},
		{line: "store --data-dir ", dirs: true},
		{line: "store x"},
		{line: "store --log-level d", words: "debug"},
		{line: "logs --stream ", words: "stdout stderr"},
		{line: "logs 7 --stre", words: "--stream"},
		{line: "--print_completion ", words: "bash zsh tcsh fish powershell"},
		{line: "completion ", words: "bash zsh tcsh fish powershell"},
		{line: "completion f", words: "fish"},
		{line: "completion -"},
		{line: "version "},
	} {
		got := Complete(strings.Split(tt.line, " "))
		var words []string
		for _, w := range got.Words {
			words = append(words, w.Word)
		}
		if tt.words == "all" {
			tt.words = "--" + strings.Join(names(Flags()), " --")
		}
		if diff := cmp.Diff(tt.words, strings.Join(words, " ")); diff != "" || got.Files != tt.files || got.Dirs != tt.dirs {
			t.Errorf("%q: files %v, folders %v, words (-want +got):\n%s", tt.line, got.Files, got.Dirs, diff)
		}
	}
}

func names(flags []Flag) []string {
	var all []string
	for _, f := range flags {
		all = append(all, f.Name)
	}
	return all
}

// The launcher accepts the words that completion offers.
func TestValues(t *testing.T) {
	alsoNeeds := map[string][]string{
		"static": {"--master-addr=127.0.0.1"},
		"etcd":   {"--rdzv-endpoint=etcd1", "--rdzv-id=job"},
	}
	for _, f := range Flags() {
		for _, value := range f.Values {
			args := append(alsoNeeds[value], "--config=/dev/null", "--"+f.Name+"="+value, "train.py")
			_, err := Load(args, machine{cpus: 4, gpus: 2, xpus: 2})
			if _, ok := errors.AsType[*CompletionRequest](err); err != nil && !ok {
				t.Error(err)
			}
		}
	}
	for _, f := range logsFlags() {
		for _, value := range f.Values {
			if _, err := LoadLogs([]string{"--config=/dev/null", "--" + f.Name + "=" + value}); err != nil {
				t.Error(err)
			}
		}
	}
}

// FuzzComplete checks that completion does not panic, and that its words begin with the word at the cursor.
func FuzzComplete(f *testing.F) {
	for _, line := range []string{"", "-", "--", "--=", "-=", "-r", "store --", "--log-dir=", "-mr=3", "completion x"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words := strings.Split(line, " ")
		last := words[len(words)-1]
		for _, w := range Complete(words).Words {
			_, value, joined := strings.Cut(last, "=")
			if !strings.HasPrefix(w.Word, last) && (!joined || !strings.HasPrefix(w.Word, value)) {
				t.Errorf("%q: offers %q", line, w.Word)
			}
		}
	})
}
