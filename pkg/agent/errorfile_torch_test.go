package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
	"github.com/elasticrun/elasticrun/pkg/failure"
	"github.com/elasticrun/elasticrun/pkg/procs"
)

// recordDriver fails under torch's @record in several ways, each with its own error file in the given folder. Then it
// passes two of the files on as torchrun's agent does.
const recordDriver = `
import os, sys
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.elastic.multiprocessing.errors.error_handler import ErrorHandler

folder = sys.argv[1]

class Unprintable(Exception):
    def __str__(self):
        raise ValueError("cannot be printed")

def plain():
    raise ValueError("boom <&>")

def chained():
    try:
        plain()
    except ValueError as e:
        raise RuntimeError("second") from e

def system_exit():
    sys.exit(3)

def odd_text():
    raise ValueError("a\udcffb\x00\x1b[31m é 日本\nsecond line")

def no_text():
    raise KeyError

def unprintable():
    raise Unprintable()

def long():
    raise ValueError("x" * 500_000)

def huge():
    raise ValueError("x" * 2_000_000)

def interrupted():
    raise KeyboardInterrupt()

for fn in (plain, chained, system_exit, odd_text, no_text, unprintable, long, huge, interrupted):
    os.environ["TORCHELASTIC_ERROR_FILE"] = os.path.join(folder, fn.__name__)
    try:
        record(fn)()
    except BaseException:
        pass

handler = ErrorHandler()
for name, code in (("plain", -11), ("odd_text", 7)):
    os.environ["TORCHELASTIC_ERROR_FILE"] = os.path.join(folder, name + "_passed_on")
    handler.dump_error_file(os.path.join(folder, name), code)
`

// The agent reads what real torch writes, and passes it on as torchrun does.
func TestErrorFileTorch(t *testing.T) {
	for _, torch := range []string{"1.13", "2.6", "2.14", testenv.Official} {
		if torch != "2.14" && !testenv.Whole(t) {
			continue
		}
		t.Run("torch "+torch, func(t *testing.T) {
			python, dir := testenv.Torch(t, torch), t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			begun := time.Now().Truncate(time.Second)
			if out, err := exec.CommandContext(ctx, python, "-c", recordDriver, dir).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, tt := range []struct{ name, message, stack string }{
				{"plain", "ValueError: boom <&>", "ValueError: boom <&>\n"},
				{"chained", "RuntimeError: second", "direct cause"},
				{"odd_text", "ValueError: a\uFFFDb\x00\x1b[31m é 日本\nsecond line", "second line\n"},
				{"no_text", "KeyError: ", "KeyError\n"},
				{"long", "ValueError: " + strings.Repeat("x", 500_000), "xxx\n"},
			} {
				got, err := readErrorFile(filepath.Join(dir, tt.name))
				if err != nil || got == nil {
					t.Errorf("%s: %v, %v", tt.name, got, err)
					continue
				}
				if got.Message != tt.message || !strings.HasPrefix(got.CallStack, "Traceback (most recent call last):\n") ||
					!strings.Contains(got.CallStack, tt.stack) {
					t.Errorf("%s: %.300q\n%.300q", tt.name, got.Message, got.CallStack)
				}
				if got.Timestamp.Before(begun) || got.Timestamp.After(time.Now()) {
					t.Errorf("%s: timestamp %v", tt.name, got.Timestamp)
				}
			}
			for _, none := range []string{"system_exit", "unprintable", "interrupted"} {
				if got, err := readErrorFile(filepath.Join(dir, none)); got != nil || err != nil {
					t.Errorf("%s: torch wrote %+v, %v", none, got, err)
				}
			}
			if got, err := readErrorFile(filepath.Join(dir, "huge")); got != nil || err == nil ||
				!strings.Contains(err.Error(), "not used") {
				t.Errorf("huge: %v, %v", got, err)
			}
			checkPassedOn(t, dir, "plain", procs.Exit{Signal: 11})
			checkPassedOn(t, dir, "odd_text", procs.Exit{Code: 7})
		})
	}
}

// checkPassedOn compares the error file that torchrun passes on with ours.
func checkPassedOn(t *testing.T, dir, name string, e procs.Exit) {
	t.Helper()
	parsed, err := readErrorFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := ErrorFileData(failure.Failure{ExitCode: e.Code, Signal: e.Signal, RawErrorFile: parsed.Raw})
	if err != nil {
		t.Fatal(err)
	}
	torchs, err := os.ReadFile(filepath.Join(dir, name+"_passed_on"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decode(t, torchs), decode(t, ours)); diff != "" || !strings.Contains(string(torchs), "errorCode") {
		t.Errorf("%s (-torchrun +ours):\n%s", name, fmt.Sprintf("%.2000s", diff))
	}
}
