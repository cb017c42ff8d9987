package zoo

import (
	"testing"
)

// TestErrorFiles checks that an error file that is empty or unusable hides no other evidence. The report names the
// right cause and the problem with the file.
func TestErrorFiles(t *testing.T) {
	t.Parallel()
	tests := []struct {
		mode  string
		code  int
		cause string
		text  string
	}{
		{"error_empty", 3, "worker_failed rank=1", "error.json is empty"},
		{"error_huge", 3, "worker_failed rank=1", "larger than"},
		{"error_text", 3, "worker_failed rank=1", "parse error file"},
		{"error_half", 137, "worker_killed rank=1", "parse error file"},
		{"error_folder", 3, "worker_failed rank=1", "not a regular file"},
		{"error_fifo", 3, "worker_failed rank=1", "not a regular file"},
		{"error_hidden", 3, "worker_failed rank=1", ""},
	}
	for _, tt := range tests {
		t.Run(tt.mode, func(t *testing.T) {
			t.Parallel()
			j := launch{args: []string{tt.mode}}.run(t)
			j.want(tt.code, tt.cause, tt.text)
		})
	}
}

// TestCauses checks that a worker that ends by itself is named as the root cause, with its reason.
func TestCauses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		mode  string
		code  int
		cause string
		text  string
	}{
		{"raises", 1, "worker_failed rank=1", "ValueError: the loss is not a number"},
		{"exits", 3, "worker_failed rank=1", "exitcode  : 3"},
		{"segfault", 139, "worker_killed rank=1", "SIGSEGV"},
		{"aborts", 134, "worker_killed rank=1", "SIGABRT"},
		{"killed", 137, "worker_killed rank=1", "SIGKILL"},
		{"imports", 1, "worker_failed rank=1", "ModuleNotFoundError: No module named 'a_module_that_nobody_has'"},
		{
			"exits_with_text",
			1,
			"worker_failed rank=1",
			`summary="exited with code 1; its last line on stderr: there is no data"`,
		},
		{
			"usage",
			2,
			"worker_failed rank=1",
			"exited with code 2; its last line on stderr: train.py: error: unrecognized arguments: --lr 1",
		},
		{
			"prefixed",
			3,
			"worker_failed rank=1",
			"exited with code 3; its last line on stderr: 12:00:01,002 ERROR ValueError: boom",
		},
		{"boxed", 3, "worker_failed rank=1", "exited with code 3; its last line on stderr: ValueError: boom"},
		{"asserts", 134, "worker_killed rank=1", "killed by signal 6 (SIGABRT): Assertion `loss == loss' failed."},
		{"replaced", 5, "worker_failed rank=1", "exitcode  : 5"},
	}
	for _, tt := range tests {
		t.Run(tt.mode, func(t *testing.T) {
			t.Parallel()
			launch{args: []string{tt.mode}}.run(t).want(tt.code, tt.cause, tt.text)
		})
	}
}
