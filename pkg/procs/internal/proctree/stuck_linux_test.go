package proctree

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The report contains what the kernel shows of threads, and says what it does not show.
func TestStuckIn(t *testing.T) {
	const rest = " 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 12345 100 200"
	self := Process{PID: os.Getpid(), Comm: "python3", State: 'D'}
	pid := filepath.Base(mustReadlink(t, "/proc/self"))
	deep := strings.Repeat("[<0>] f+0x1/0x2\n", maxStuckFrames+1)
	for _, tt := range []struct {
		name  string
		files map[string]string // below task/; a stack "EACCES" may not be read
		want  string
	}{
		{name: "no visible thread"},
		{
			name:  "everything is known",
			files: map[string]string{pid + "/stat": pid + " (python3) D" + rest, pid + "/wchan": "nfs_wait", pid + "/stack": "[<0>] nfs_wait+0x12/0x40 [nfs]\n[<0>] vfs_read+0x1/0x2\n"},
			want:  ", in uninterruptible sleep in nfs_wait, kernel stack: nfs_wait < vfs_read",
		},
		{
			name:  "the kernel hides both",
			files: map[string]string{pid + "/stat": pid + " (python3) D" + rest, pid + "/wchan": "0", pid + "/stack": "EACCES"},
			want:  ", in uninterruptible sleep (the kernel does not say where), kernel stack for root only",
		},
		{
			name:  "a kernel without stacks",
			files: map[string]string{pid + "/stat": pid + " (python3) D" + rest},
			want:  ", in uninterruptible sleep (the kernel does not say where), no kernel stack: no such file or directory",
		},
		{
			name:  "a deep stack",
			files: map[string]string{pid + "/stat": pid + " (python3) D" + rest, pid + "/wchan": "f", pid + "/stack": deep},
			want:  ", in uninterruptible sleep in f, kernel stack: " + strings.Repeat("f < ", maxStuckFrames) + "…",
		},
		{
			name: "many threads, one of which would go",
			files: map[string]string{
				pid + "/stat": pid + " (python3) Z" + rest,
				"11/stat":     "11 (a) D" + rest, "12/stat": "12 (b) D" + rest, "13/stat": "13 (c) R" + rest,
				"14/stat": "14 (d) D" + rest, "15/stat": "15 (e) D" + rest, "16/stat": "16 (f) D" + rest,
				"11/wchan": "a", "12/wchan": "b", "14/wchan": "d", "15/wchan": "e", "11/stack": "", "12/stack": "", "14/stack": "", "15/stack": "",
			},
			want: ", thread 11 (a) in uninterruptible sleep in a, no kernel stack, thread 12 (b) in uninterruptible sleep in b, no kernel stack" +
				", thread 14 (d) in uninterruptible sleep in d, no kernel stack, thread 15 (e) in uninterruptible sleep in e, no kernel stack, and 1 more threads",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proc := t.TempDir()
			for name, text := range tt.files {
				path := filepath.Join(proc, pid, "task", name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if text == "EACCES" {
					if os.Getuid() == 0 {
						t.Skip("root may read everything")
					}
					if err := os.WriteFile(path, nil, 0); err != nil {
						t.Fatal(err)
					}
				} else if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tt.want, stuckIn(proc, self)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if os.Getuid() != 0 {
		if got := stuckIn("/proc", Process{PID: 1}); got != ", which this user may not signal" {
			t.Errorf("of init: %q", got)
		}
	}
}

func mustReadlink(t *testing.T, path string) string {
	t.Helper()
	to, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return to
}
