package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/e2e/testenv"
)

// flood writes 1.5 MB. When it ends, at most 640 KiB may still be in the worker's pipe and the launcher, so the
// launcher has written to the full disk. The disk's filler is larger than that, so all of it fits once the filler is
// gone.
const flood = `i=0; while [ $i -lt 20000 ]; do echo "$i 0123456789012345678901234567890123456789012345678901234567890123456789"; i=$((i+1)); done`

// A full disk under stdout or stderr loses only the output that did not fit. The launcher reports how much was lost,
// shows all later output once there is room, and does not end with 0 if it could not report the loss.
func TestFullDiskUnderConsole(t *testing.T) {
	t.Parallel()
	testenv.Root(t) // to mount
	const lost = "of output are missing here: no space left on device\n"
	for _, tt := range []struct {
		name, redirect, script string
		code                   int
		disk, elsewhere        []string // what is shown, in order
		report                 string
	}{
		{
			"room again", `>>"$DISK"/out 2>&1`, flood + `; rm "$DISK"/filler; echo after; exit 3`, 3,
			[]string{lost, "after\n", "bytes=", "FAILED\n", "elasticrun: exit_code=3 reason=worker_failed"},
			nil, "output was lost",
		},
		{
			"stdout", `>>"$DISK"/out`, flood, 0,
			nil,
			[]string{"bytes of stdout were lost: no space left on device\n"},
			"output was lost",
		},
		{
			"stderr", `2>>"$DISK"/out`, flood + " >&2; exit 3", 3,
			nil,
			[]string{
				"bytes of stderr were lost: no space left on device\n", "FAILED\n",
				"elasticrun: exit_code=3 reason=worker_failed",
			},
			"output was lost",
		},
		{"both", `>>"$DISK"/out 2>&1`, flood, 74, nil, nil, `"reason": "output"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			disk, reports := t.TempDir(), filepath.Join(t.TempDir(), "report.json")
			script := fmt.Sprintf(`mount -t tmpfs -o size=1024k none "$DISK" && head -c 1000k /dev/zero >"$DISK"/filler && "$@" %s; code=$?; cat "$DISK"/out >&3; exit $code`, tt.redirect)
			cmd := exec.Command("unshare", "--mount", "sh", "-c", script, "sh",
				testenv.Binary(t), "--no-python", "--report="+reports, "sh", "-c", tt.script)
			cmd.Env = append(os.Environ(), "DISK="+disk)
			onDisk, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer onDisk.Close()
			cmd.ExtraFiles = []*os.File{onDisk}
			elsewhere, _ := cmd.CombinedOutput()
			if code := testenv.ExitCode(cmd.ProcessState); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			shown, err := os.ReadFile(onDisk.Name())
			if err != nil {
				t.Fatal(err)
			}
			wantInOrder(t, string(shown), tt.disk)
			wantInOrder(t, string(elsewhere), tt.elsewhere)
			if data, err := os.ReadFile(reports); err != nil || !strings.Contains(string(data), tt.report) {
				t.Errorf("the report lacks %q: %v\n%s", tt.report, err, data)
			}
		})
	}
}

func wantInOrder(t *testing.T, text string, want []string) {
	t.Helper()
	rest := text
	for _, w := range want {
		_, after, found := strings.Cut(rest, w)
		if !found {
			t.Errorf("%q is missing, or comes too early, in:\n%s", w, text[max(0, len(text)-2000):])
		}
		rest = after
	}
}
