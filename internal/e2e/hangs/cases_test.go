package hangs

// hang is one way in which a job hangs: a function in testdata/hangs.
type hang struct {
	name string
	// only is the script that has it; empty if both plain.py and ddp.py do.
	only string
	// victims means that with torch other ranks are named too: they wait in the odd operation, because of the odd rank.
	victims bool
	// everybody means that elasticrun cannot find out which rank is the odd one.
	everybody bool
	// operation means that the odd rank waits in an operation of torch, as the others do.
	operation bool
	// frame is the text of a frame of the odd rank's main thread, such as a function; empty for the hang's name.
	frame string
	// state is the kernel's state of the odd rank's main thread; empty for "sleeping".
	state string
	// file is what HANG_FILE must be: a file whose readers hang, or one on a frozen disk. Both need root.
	file fileKind
	// quick means that make test has it.
	quick bool
	// torch means that short runs of make soak have it with torch too, as they have the quick ones.
	torch bool
}

// fileKind is a kind of HANG_FILE.
type fileKind int

const (
	noFile fileKind = iota
	hungFile
	frozenFile
)

const (
	running = "running"
	stopped = "stopped"
	inDisk  = "disk sleep"
	either  = "either" // running or sleeping
	gone    = "gone"   // the rank has exited
	plain   = "plain.py"
	ddp     = "ddp.py"
)

// hangs are all functions in testdata/hangs that hang.
var hangs = []hang{
	{name: "lock_twice", quick: true},
	{name: "deadlock"},
	{name: "child_stuck"},
	{name: "child_stopped"},
	{name: "loader_stuck", only: ddp},
	{name: "loader_stopped", only: ddp},
	{name: "regex", state: running},
	{name: "c_call_with_gil"},
	{name: "busy_line", state: running},
	{name: "busy_lines", state: running, torch: true},
	{name: "polls", state: either},
	{name: "stopped", state: stopped, quick: true},
	{name: "hung_read", file: hungFile},
	{name: "frozen_write", state: inDisk, file: frozenFile},
	{name: "vfork", state: inDisk, quick: true},
	{name: "silent_peer"},
	{name: "accept"},
	{name: "full_pipe"},
	{name: "fifo_open"},
	{name: "import_lock"},
	{name: "sleep"},
	{name: "queue_get"},
	{name: "event_wait"},
	{name: "thread_join"},
	{name: "subprocess_run"},
	{name: "flock"},
	{name: "waitpid"},
	{name: "signal_pause"},
	{name: "select_nothing"},
	{name: "input_pipe"},
	{name: "exit_early", state: gone, quick: true},
	{name: "asyncio_idle"},
	{name: "fork_lock"},
	{name: "finally_hang"},
	{name: "atexit_hang", frame: "flush_metrics"},
	{name: "last_thread", frame: "_shutdown"},
	{name: "pool_dead_child"},
	{name: "dead_owner"},
	{name: "collective_skipped", operation: true, quick: true},
	{name: "collective_mismatch", operation: true, victims: true},
	{name: "p2p_recv", only: ddp},
	{name: "group_alone", only: ddp},
	{name: "store_key", only: ddp},
	{name: "halves", everybody: true, torch: true},
	{name: "everyone", everybody: true},
}

// innocents are all functions of testdata/hangs/innocent.py: jobs that show little or no progress for a while, and then
// go on.
var innocents = []struct {
	name  string
	quick bool // make test has it
	// silent means that the job shows no sign of life to an observer from outside, so a hang is reported if the user's
	// timeout is shorter than the pause. The report does not end the job, because the second look finds progress.
	silent bool
	// timeout is the --hang-timeout and seconds the length of the pause, where they are not hangTimeout and
	// innocentSeconds. In that time elasticrun looks twice.
	timeout, seconds int
}{
	{name: "thread_prints", timeout: 24, seconds: 56},
	{name: "process_prints", timeout: 24, seconds: 56},
	{name: "pool_in_bursts", silent: true, timeout: hangTimeout, seconds: 30},
	{name: "receives", silent: true, timeout: hangTimeout, seconds: 30},
	{name: "compiles", silent: true},
	{name: "checkpoint"},
	{name: "evaluation", silent: true},
	{name: "download", silent: true},
	{name: "first_step", silent: true},
	{name: "stopped", silent: true},
	{name: "suspended", quick: true},
	{name: "slow_rank", silent: true},
	{name: "debugger"},
	{name: "server", silent: true},
	{name: "preprocessing", silent: true},
	{name: "c_call", silent: true},
	{name: "prints"},
	{name: "kernels", silent: true},
}
