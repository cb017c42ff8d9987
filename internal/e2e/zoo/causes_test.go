package zoo

import "testing"

// misbehavior is a mode of zoo.py, with the end of its job.
type misbehavior struct {
	mode        string
	args, flags []string
	code        int
	cause, text string
}

// runEach runs a job for each misbehavior.
func runEach(t *testing.T, tests []misbehavior) {
	t.Helper()
	t.Parallel()
	for _, tt := range tests {
		t.Run(tt.mode, func(t *testing.T) {
			t.Parallel()
			launch{flags: tt.flags, args: append([]string{tt.mode}, tt.args...)}.run(t).want(tt.code, tt.cause, tt.text)
		})
	}
}

// TestErrorFiles checks that an error file that is empty or unusable hides no other evidence. The report names the
// right cause and the problem with the file.
func TestErrorFiles(t *testing.T) {
	runEach(t, []misbehavior{
		{mode: "error_empty", code: 3, cause: "worker_failed rank=1", text: "error.json is empty"},
		{mode: "error_huge", code: 3, cause: "worker_failed rank=1", text: "larger than"},
		{mode: "error_text", code: 3, cause: "worker_failed rank=1", text: "parse error file"},
		{mode: "error_half", code: 137, cause: "worker_killed rank=1", text: "parse error file"},
		{mode: "error_folder", code: 3, cause: "worker_failed rank=1", text: "not a regular file"},
		{mode: "error_fifo", code: 3, cause: "worker_failed rank=1", text: "not a regular file"},
		{mode: "error_hidden", code: 3, cause: "worker_failed rank=1"},
	})
}

// TestCauses checks that a worker that ends by itself is named as the root cause, with its reason.
func TestCauses(t *testing.T) {
	runEach(t, []misbehavior{
		{mode: "raises", code: 1, cause: "worker_failed rank=1", text: "ValueError: the loss is not a number"},
		{mode: "exits", code: 3, cause: "worker_failed rank=1", text: "exitcode  : 3"},
		{mode: "segfault", code: 139, cause: "worker_killed rank=1", text: "SIGSEGV"},
		{mode: "aborts", code: 134, cause: "worker_killed rank=1", text: "SIGABRT"},
		{mode: "killed", code: 137, cause: "worker_killed rank=1", text: "SIGKILL"},
		{
			mode: "imports", code: 1, cause: "worker_failed rank=1",
			text: "ModuleNotFoundError: No module named 'a_module_that_nobody_has'",
		},
		{
			mode: "exits_with_text", code: 1, cause: "worker_failed rank=1",
			text: `summary="there is no data (its last line on stderr; exited with code 1)"`,
		},
		{
			mode: "usage", code: 2, cause: "worker_failed rank=1",
			text: `summary="train.py: error: unrecognized arguments: --lr 1"`,
		},
		{
			mode: "prefixed", code: 3, cause: "worker_failed rank=1",
			text: "12:00:01,002 ERROR ValueError: boom (its last line on stderr; exited with code 3)",
		},
		{
			mode: "boxed", code: 3, cause: "worker_failed rank=1",
			text: `summary="ValueError: boom"`,
		},
		{
			mode: "asserts", code: 134, cause: "worker_killed rank=1",
			text: "killed by signal 6 (SIGABRT): Assertion `loss == loss' failed.",
		},
		{mode: "replaced", code: 5, cause: "worker_failed rank=1", text: "exitcode  : 5"},
	})
}
