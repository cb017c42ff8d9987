package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/interpreter"
	"github.com/elasticrun/elasticrun/internal/oneshot"
	"github.com/elasticrun/elasticrun/internal/preview"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/evidence"
)

// fit returns the facts of a machine without any problem.
func fit() facts {
	own := []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	return facts{
		Nodes: 2, Workers: 8, Now: time.Unix(1e6, 0),
		Python: &Python{Path: "/bin/python3", Source: "PATH", Answer: interpreter.Answer{
			Python: "3.11.2", Executable: "/bin/python3", Took: 20 * time.Millisecond,
		}},
		Script:   "train.py",
		HostName: Name{Host: "node1", Addrs: own, Local: own},
		Endpoints: []preview.Endpoint{{Host: "node1", Port: 29400, Addresses: []preview.Address{
			{Addr: own[0], Local: true, State: preview.StateThisRun, Store: &preview.StoreInfo{
				RoundTrip:   0.001,
				ClockOffset: 0.2,
			}},
		}}},
		Disks: []Disk{
			{What: "temporary files", Path: "/tmp", Total: 100 * gib, Free: 50 * gib, Files: 1e6, FreeFiles: 1e5},
			{What: shmName, Path: "/dev/shm", Total: 64 * gib, Free: 64 * gib},
		},
		GPUs: GPUs{Program: "/bin/nvidia-smi", Visible: 8, Health: []topology.GPUHealth{
			{Index: "0", Name: "H100", Temperature: 45}, {Index: "1", Name: "H100", Temperature: 46},
		}},
		Kernel: evidence.KernelLog{Readable: true},
		Limits: Limits{
			NoFile: 1 << 20, MemLock: unlimited, Core: 0, CorePattern: "core", PIDMax: 4194304,
			CgroupPIDs: unlimited, RDMA: true,
		},
		Memory: Memory{Total: 512 * gib, Available: 400 * gib},
	}
}

func withTorch(t interpreter.Torch) func(f *facts) {
	return func(f *facts) { f.Python.AskedTorch, f.Python.Answer.Torch = true, &t }
}

func withModule(runs, exists interpreter.Presence) func(f *facts) {
	return func(f *facts) { f.Module = &Module{Runs: runs, Exists: exists} }
}

// TestJudge changes one fact of a fit machine, and checks which check notices it.
func TestJudge(t *testing.T) {
	t.Parallel()
	xid := func(age time.Duration, text string) evidence.KernelLog {
		return evidence.KernelLog{Readable: true, Xids: []evidence.XidEvent{{Time: time.Unix(1e6, 0).Add(-age), Text: text}}}
	}
	at := func(f *facts) *preview.Address { return &f.Endpoints[0].Addresses[0] }
	for _, tc := range []struct {
		name   string
		change func(f *facts)
		check  string // the check that is not ok; empty for none
		status Status
		value  string // in the check's value
	}{
		{name: "nothing", change: func(*facts) {}},
		{name: "--no-python", change: func(f *facts) { f.Python = nil }},
		{
			"python that does not start", func(f *facts) { f.Python.Err = errors.New("exit status 1") }, "interpreter",
			Fail, "/bin/python3 (from PATH): exit status 1",
		},
		{"python that takes long", func(f *facts) { f.Python.Answer.Took = 6 * time.Second }, "interpreter", Warn, "in 6s"},
		{
			"no python", func(f *facts) { *f.Python = Python{Err: errors.New("find a python interpreter: none")} }, "interpreter",
			Fail, "find a python interpreter: none",
		},
		{
			"not a python", func(f *facts) { f.Python.Answer = interpreter.Answer{} }, "interpreter", Warn,
			"does not answer as Python does",
		},
		{"an environment that is not used", func(f *facts) {
			f.Python.Unused = &interpreter.UnusedEnvironment{Variable: "CONDA_PREFIX", Root: "/c"}
		}, "environment", Warn, "CONDA_PREFIX=/c is active, but the run uses /bin/python3"},
		{"an environment that is broken", func(f *facts) {
			f.Python.Unused = &interpreter.UnusedEnvironment{Variable: "VIRTUAL_ENV", Root: "/v/", Err: errors.New("gone")}
		}, "environment", Warn, "/v/bin/python: gone"},
		{"no torch", withTorch(interpreter.Torch{Missing: true}), "torch", Warn, "none in /bin/python3"},
		{
			"torch that cannot be imported", withTorch(interpreter.Torch{Problem: "ImportError: no libcudart"}), "torch", Warn,
			"import torch: ImportError: no libcudart",
		},
		{"torch that crashes", func(f *facts) {
			f.Python.AskedTorch, f.Python.Err = true, errors.New("signal: segmentation fault")
		}, "torch", Warn, "import torch: signal: segmentation fault"},
		{"torch that hangs", func(f *facts) {
			f.Python.AskedTorch, f.Python.Err = true, fmt.Errorf("%w within 1m0s", oneshot.ErrLimit)
		}, "torch", Warn, "import torch: no end within 1m0s"},
		{
			"torch without CUDA", withTorch(interpreter.Torch{Version: "2.9.0", Device: "CPUs"}), "torch", Warn,
			"2.9.0 for CPUs, starts and is imported in 20ms",
		},
		{name: "torch with CUDA", change: withTorch(interpreter.Torch{Version: "2.9.0", Device: "CUDA 12.8"})},
		{name: "torch without CUDA where there is no GPU", change: func(f *facts) {
			withTorch(interpreter.Torch{Version: "2.9.0", Device: "CPUs"})(f)
			f.GPUs = GPUs{}
		}},
		{"torch that takes long", func(f *facts) {
			withTorch(interpreter.Torch{Version: "2.9.0", Device: "CUDA 12.8"})(f)
			f.Python.Answer.Took = 40 * time.Second
		}, "torch", Warn, "in 40s"},
		{"a shell script", func(f *facts) { f.ScriptDoubt = "a shell script" }, "script", Warn, "a shell script"},
		{name: "a module", change: withModule(interpreter.Present, interpreter.Present)},
		{
			"a module that is not there", withModule(interpreter.Absent, interpreter.Absent), "script", Fail,
			"module train.py is not in",
		},
		{
			"a module that a hook may have", withModule(interpreter.Unknown, interpreter.Unknown), "script", Warn,
			"module train.py is not in",
		},
		{
			"a package without a program", withModule(interpreter.Unknown, interpreter.Present), "script", Warn,
			"a package without __main__.py",
		},
		{"no script", func(f *facts) { f.ScriptErr = errors.New("not there") }, "script", Fail, "not there"},
		{"port taken", func(f *facts) { f.PortErr = errors.New("port 1 is held") }, "ports", Fail, "port 1 is held"},
		{
			"name not known", func(f *facts) { f.HostName.Err = errors.New("it cannot be looked up") }, "host name", Warn,
			"node1: it cannot",
		},
		{"name of another machine", func(f *facts) { f.HostName.Local = nil }, "host name", Warn, "node1 is 10.0.0.1"},
		{"name that is loopback", func(f *facts) {
			f.HostName.Addrs = []netip.Addr{netip.MustParseAddr("127.0.1.1")}
		}, "host name", Warn, "127.0.1.1"},
		{name: "name that is loopback, on one node", change: func(f *facts) {
			f.Nodes, f.HostName.Addrs = 1, []netip.Addr{netip.MustParseAddr("127.0.1.1")}
		}},
		{
			"endpoint without an address", func(f *facts) { f.Endpoints = []preview.Endpoint{{Problem: "no such host"}} },
			"endpoint", Warn, "no such host",
		},
		{
			"endpoint behind a firewall", func(f *facts) { at(f).State, at(f).Store = preview.StateTimedOut, nil },
			"endpoint", Warn, "10.0.0.1",
		},
		{"endpoint not there yet", func(f *facts) {
			at(f).State, at(f).Store, at(f).Local = preview.StateNobody, nil,
				false
		}, "endpoint", Warn, "10.0.0.1"},
		{name: "endpoint to be hosted here", change: func(f *facts) { at(f).State, at(f).Store = preview.StateNobody, nil }},
		{
			"another secret", func(f *facts) { at(f).State, at(f).Store = preview.StateOtherSecret, nil }, "endpoint", Warn,
			"10.0.0.1",
		},
		{
			"an unknown program", func(f *facts) { at(f).State, at(f).Store = preview.StateUnknownProgram, nil }, "endpoint", Warn,
			"10.0.0.1",
		},
		{"refused", func(f *facts) { f.Refusal = errors.New("another job's") }, "rendezvous", Fail, "another job's"},
		{"refused, so that the store is not this job's", func(f *facts) {
			f.Refusal, f.Admission = errors.New("another job's"), config.Admission{Who: "everybody", Open: true}
		}, "rendezvous", Fail, "another job's"},
		{
			"a store for everybody",
			func(f *facts) { f.Admission = config.Admission{Who: "everybody", Open: true} },
			"admission", Warn, "the store serves everybody",
		},
		{name: "a store with a secret", change: func(f *facts) { f.Admission = config.Admission{Who: "agents with the secret"} }},
		{"clocks apart", func(f *facts) { at(f).Store.ClockOffset = -1.1 }, "clock", Warn, "ahead by -1.1s"},
		{name: "clocks apart by no more than the way takes", change: func(f *facts) {
			at(f).Store.ClockOffset,
				at(f).Store.RoundTrip = 1.1, 0.3
		}},
		{"little room", func(f *facts) { f.Disks[0].Free = gib - 1 }, "temporary files", Warn, "1023 MiB free of 100 GiB"},
		{"no room", func(f *facts) { f.Disks[0].Free = mib }, "temporary files", Fail, "1.0 MiB free"},
		{"no room for files", func(f *facts) { f.Disks[0].FreeFiles = 5 }, "temporary files", Fail, "5 more files"},
		{
			"no folder", func(f *facts) { f.Disks[0].Err = errors.New("permission denied") }, "temporary files", Fail,
			"permission denied",
		},
		{
			"a container's shared memory", func(f *facts) { f.Disks[1].Total, f.Disks[1].Free = 64*mib, 64*mib }, shmName,
			Warn, "64 MiB free of 64 MiB",
		},
		{"shared memory used up", func(f *facts) { f.Disks[1].Free = 0 }, shmName, Fail, "0 B free of 64 GiB"},
		{"no shared memory", func(f *facts) { f.Disks[1].Err = errors.New("no such file") }, shmName, Warn, "no such file"},
		{name: "no GPUs", change: func(f *facts) { f.GPUs = GPUs{} }},
		{"driver that fails", func(f *facts) { f.GPUs.Err = errors.New("no answer") }, "GPUs", Fail, "no answer"},
		{"GPUs of AMD", func(f *facts) { f.GPUs = GPUs{Vendor: topology.AMD, Installed: 8, Visible: 4} }, "GPUs", Warn, "8 of AMD, of which workers would see 4"},
		{
			"GPUs that may not be opened", func(f *facts) { f.GPUs = GPUs{Err: fmt.Errorf("open it: %w", fs.ErrPermission)} }, "GPUs",
			Fail, "open it: permission denied",
		},
		{
			"a bad list of GPUs", func(f *facts) { f.GPUs = GPUs{Err: &topology.VariableError{Name: "A", Value: "b", Problem: "c"}} },
			"GPUs", Fail, `A="b": c`,
		},
		{"no nvidia-smi", func(f *facts) { f.GPUs = GPUs{Visible: 8} }, "GPUs", Warn, "8, their state"},
		{"workers that share", func(f *facts) { f.GPUs.Visible = 4 }, "GPUs", Warn, "would see 4"},
		{
			"ECC errors", func(f *facts) { f.GPUs.Health[1].UncorrectedErrors = 2 }, "GPU 1", Warn,
			"2 uncorrectable ECC errors",
		},
		{"reset pending", func(f *facts) { f.GPUs.Health[1].ResetPending = true }, "GPU 1", Fail, "a reset is pending"},
		{
			"rows used up", func(f *facts) { f.GPUs.Health[1].RemapFailed = true }, "GPU 1", Fail,
			"remapping its memory failed",
		},
		{"lost", func(f *facts) { f.GPUs.Health[1].Broken = "ERR!" }, "GPU 1", Fail, "ERR!"},
		{"hot", func(f *facts) { f.GPUs.Health[1].Temperature = 90 }, "GPU 1", Warn, "90 °C"},
		{"slow", func(f *facts) { f.GPUs.Health[1].Slowdowns = []string{"a power brake"} }, "GPU 1", Warn, "a power brake"},
		{
			"Xid", func(f *facts) { f.Kernel = xid(time.Minute, "NVRM: Xid (PCI:0000:01:00): 31, pid=7") }, "kernel log",
			Warn, "Xid (PCI:0000:01:00): 31",
		},
		{name: "old Xid", change: func(f *facts) { f.Kernel = xid(2*time.Hour, "NVRM: Xid (PCI:0000:01:00): 31, pid=7") }},
		{
			"lost GPU, long ago", func(f *facts) { f.Kernel = xid(2*time.Hour, "NVRM: Xid (PCI:0000:01:00): 79, pid=7") },
			"kernel log", Fail, "79",
		},
		{name: "kernel log not readable", change: func(f *facts) { f.Kernel.Readable = false }},
		{"few files", func(f *facts) { f.Limits.NoFile = 1024 }, "open files", Warn, "at most 1024"},
		{"little locked memory", func(f *facts) { f.Limits.MemLock = 64 << 10 }, "locked memory", Warn, "64 KiB"},
		{name: "little locked memory, without RDMA", change: func(f *facts) {
			f.Limits.MemLock, f.Limits.RDMA = 64<<10,
				false
		}},
		{"few pids", func(f *facts) { f.Limits.PIDMax = 1000 }, "processes", Warn, "pids up to 1000"},
		{
			"few pids left in the cgroup", func(f *facts) { f.Limits.CgroupPIDs, f.Limits.CgroupPIDsUsed = 4096, 3000 },
			"processes", Warn, "3000 of this cgroup's 4096",
		},
		{"little memory", func(f *facts) { f.Memory.Available = 7 * gib }, "memory", Warn, "7.0 GiB available of 512 GiB"},
		{
			"little memory in the cgroup", func(f *facts) { f.Memory.CgroupMax, f.Memory.CgroupUsed = 8*gib, gib }, "memory",
			Warn, "limit is 8.0 GiB, of which 7.0 GiB",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := fit()
			tc.change(&f)
			found := false
			for _, c := range judge(f) {
				switch {
				case c.Name == tc.check && c.Status != OK:
					found = true
					if c.Status != tc.status || !strings.Contains(c.Value, tc.value) {
						t.Errorf("%+v, want %s and %q", c, tc.status, tc.value)
					}
				case c.Status != OK:
					t.Errorf("%+v is not ok", c)
				}
			}
			if tc.check != "" && !found {
				t.Errorf("%s is ok", tc.check)
			}
		})
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	r := Report{Version: "v", Host: "h", Checks: []Check{
		{"a", OK, "fine", ""}, {"b", Warn, "so so", "look"}, {"c", Fail, "bad\x1b[31m", "mend it"}, {"d", Fail, "worse", ""},
	}}
	if got, want := fmt.Sprint(r.Err()), "this machine is not fit for the job: c: bad?[31m: mend it; d: worse"; got != want {
		t.Errorf("problems %q, want %q", got, want)
	}
	want := `ok    a               fine
warn  b               so so
                      look
fail  c               bad?[31m
                      mend it
fail  d               worse
h: 1 ok, 1 warning, 2 failed
`
	if got := r.Text(); got != want {
		t.Errorf("text\n%s\nwant\n%s", got, want)
	}
	data, err := Report{}.JSON()
	if err != nil || !json.Valid(data) || !strings.Contains(string(data), `"checks": []`) {
		t.Errorf("an empty report is %s, %v", data, err)
	}
}

// TestAdviceForAnOpenStore checks that the advice is what closes the store.
func TestAdviceForAnOpenStore(t *testing.T) {
	t.Parallel()
	const remedy = "make a secret"
	if c := admission(config.Admission{Who: "everybody", Open: true, Remedy: remedy}); c.Advice != remedy {
		t.Errorf("got the advice %q, want %q", c.Advice, remedy)
	}
}

// TestAdviceWhereTheStoreMayBeTheJobs checks that a refusal which the user can correct suggests no other endpoint.
func TestAdviceWhereTheStoreMayBeTheJobs(t *testing.T) {
	t.Parallel()
	for state, another := range map[string]bool{
		preview.StateOtherSecret: false, preview.StateCertificate: false, preview.StateOtherVersion: false,
		preview.StateBusy:     false,
		preview.StateOtherRun: true, preview.StateUnknownProgram: true,
	} {
		c := endpoint("node0", preview.Address{State: state})
		if c.Status != Warn || strings.Contains(c.Advice, "another endpoint") != another {
			t.Errorf("%s: %+v, want a warning, with another endpoint: %v", state, c, another)
		}
		at := []preview.Endpoint{{Addresses: []preview.Address{{State: state}}}}
		checks := endpoints(at, errors.New("refused"))
		if c := checks[len(checks)-1]; c.Name != "rendezvous" || strings.Contains(c.Advice, "its own endpoint") != another {
			t.Errorf("%s: %+v, want the refusal, with another endpoint: %v", state, c, another)
		}
	}
}

// TestStoreKeepers checks that doctor says whose loss would end the job, unless the job would be refused.
func TestStoreKeepers(t *testing.T) {
	kept := Check{Name: "store", Status: OK, Value: "kept by 3 nodes"}
	for _, refusal := range []error{nil, errors.New("another job's")} {
		checks := judge(facts{Keepers: "by 3 nodes", Refusal: refusal})
		if says := slices.Contains(checks, kept); says != (refusal == nil) {
			t.Errorf("with refusal %v: %v", refusal, says)
		}
	}
}
