package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/lazyregexp"
	"github.com/elasticrun/elasticrun/internal/preview"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/evidence"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// judge returns the checks that follow from the facts.
func judge(f facts) []Check {
	var checks []Check
	if f.Python != nil {
		checks = append(checks, python(*f.Python, f.GPUs)...)
	}
	if f.Script != "" {
		checks = append(checks, script(f))
	}
	checks = append(checks, ports(f.PortErr), hostName(f.HostName, f.Nodes))
	checks = append(checks, endpoints(f.Endpoints, f.Refusal)...)
	if f.Keepers != "" && f.Refusal == nil {
		checks = append(checks, Check{Name: "store", Status: OK, Value: "kept " + f.Keepers})
	}
	if f.Admission.Who != "" && f.Refusal == nil { // else a store is there that this node's settings do not describe
		checks = append(checks, admission(f.Admission))
	}
	for _, d := range f.Disks {
		checks = append(checks, disk(d))
	}
	checks = append(checks, gpus(f.GPUs, f.Workers)...)
	checks = append(checks, kernelLog(f.Kernel, f.Now))
	return append(append(checks, limits(f.Limits, f.Workers)...), memory(f.Memory, f.Workers))
}

func script(f facts) Check {
	switch {
	case f.ScriptErr != nil:
		return Check{"script", Fail, f.ScriptErr.Error(), "put it at the same path on every node"}
	case f.ScriptDoubt != "":
		return Check{Name: "script", Status: Warn, Value: f.ScriptDoubt}
	case f.Module != nil:
		return module(f.Script, *f.Module)
	}
	return Check{Name: "script", Status: OK, Value: f.Script + " can be read"}
}

func ports(err error) Check {
	if err != nil {
		return Check{Name: "ports", Status: Fail, Value: err.Error()}
	}
	return Check{Name: "ports", Status: OK, Value: "the given ports are free"}
}

func hostName(n Name, nodes int) Check {
	c := Check{Name: "host name", Status: OK, Value: n.Host}
	const advice = "gloo looks it up: add it to /etc/hosts with this machine's address, or set GLOO_SOCKET_IFNAME to a " +
		"network interface"
	var addrs []string
	loopback := true
	for _, a := range n.Addrs {
		addrs = append(addrs, a.String())
		loopback = loopback && a.IsLoopback()
	}
	switch {
	case n.Err != nil:
		c.Status, c.Value, c.Advice = Warn, fmt.Sprintf("%s: %v", n.Host, n.Err), advice
		return c
	case len(n.Local) == 0:
		c.Status, c.Advice = Warn, "none of these addresses belongs to this machine; "+advice
	case loopback && nodes > 1:
		c.Status, c.Advice = Warn, "other nodes cannot reach a loopback address; "+advice
	}
	c.Value += " is " + strings.Join(addrs, ", ")
	return c
}

// clockBound is the largest harmless difference of two clocks, beyond the uncertainty of half a round trip.
const clockBound = time.Second

// endpoints judges the rendezvous endpoints. A store that is missing now may start later, so that is a warning.
func endpoints(at []preview.Endpoint, refusal error) []Check {
	var checks []Check
	for _, e := range at {
		name := fmt.Sprintf("%s:%d", e.Host, e.Port)
		if e.Socket != "" {
			name = e.Socket
		}
		if e.Problem != "" {
			checks = append(checks, Check{
				"endpoint", Warn, e.Problem,
				"correct the name or the name service; the launch retries until join_timeout",
			})
		}
		for _, a := range e.Addresses {
			checks = append(checks, endpoint(name, a))
			if a.Store != nil {
				checks = append(checks, clock(*a.Store))
			}
		}
	}
	if refusal != nil {
		c := Check{Name: "rendezvous", Status: Fail, Value: refusal.Error()}
		if len(at) > 0 && !slices.ContainsFunc(at, mayBeTheJobs) { // else the error says what to do
			c.Advice = "give each job its own endpoint, the same on all of its nodes"
		}
		checks = append(checks, c)
	}
	return checks
}

// mayBeTheJobs reports whether the store at the endpoint may be the job's own: it refuses this node for a reason that
// the user can correct.
func mayBeTheJobs(e preview.Endpoint) bool {
	return slices.ContainsFunc(e.Addresses, func(a preview.Address) bool { return isCorrectable(a.State) })
}

// isCorrectable reports whether a store in this state says itself what to do.
func isCorrectable(state string) bool {
	switch state {
	case preview.StateOtherSecret, preview.StateCertificate, preview.StateOtherVersion, preview.StateBusy:
		return true
	}
	return false
}

func endpoint(name string, a preview.Address) Check {
	if a.Addr.IsValid() {
		name += " at " + a.Addr.String()
	}
	c := Check{Name: "endpoint", Status: OK, Value: name + ": " + a.Detail}
	if isCorrectable(a.State) {
		c.Status = Warn
		return c
	}
	switch a.State {
	case preview.StateThisRun, preview.StateAnyRun, preview.StateListens:
	case preview.StateNobody:
		if !a.Local {
			c.Status, c.Advice = Warn, "its node may not have started yet"
		}
	case preview.StateTimedOut, preview.StateUnreachable, preview.StateSilent:
		c.Status, c.Advice = Warn, "check that the machine is up and that no firewall blocks the port"
	default:
		c.Status, c.Advice = Warn, "this is not the store of this job; give the job another endpoint"
	}
	return c
}

func admission(a config.Admission) Check {
	c := Check{Name: "admission", Status: OK, Value: "the store serves " + a.Who}
	if a.Open {
		c.Status, c.Advice = Warn, a.Remedy
	}
	return c
}

func clock(s preview.StoreInfo) Check {
	offset, trip := duration(s.ClockOffset), duration(s.RoundTrip)
	c := Check{Name: "clock", Status: OK, Value: fmt.Sprintf("the store's host is ahead by %v ± %v; round trip %v",
		offset.Round(100*time.Microsecond), (trip / 2).Round(100*time.Microsecond), trip.Round(100*time.Microsecond))}
	if offset.Abs() > clockBound+trip/2 {
		c.Status, c.Advice = Warn, "times in the logs and reports of different nodes will not match: synchronize both "+
			"clocks by NTP"
	}
	return c
}

func duration(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// disk judges the free space of a file system. Shared memory is one too.
func disk(d Disk) Check {
	c := Check{Name: d.What, Status: OK, Value: fmt.Sprintf("%s: %s free of %s", d.Path, size(d.Free), size(d.Total))}
	shm := d.What == shmName
	switch {
	case d.Err != nil && shm:
		c.Status, c.Value, c.Advice = Warn, d.Err.Error(), "data loaders and NCCL need it: mount a tmpfs there"
	case d.Err != nil:
		c.Status, c.Value, c.Advice = Fail, d.Err.Error(), "name a folder that this user can write"
	case shm && d.Free < 16*mib:
		c.Status, c.Advice = Fail, "NCCL needs more: delete the files of dead processes, or give the container more "+
			"(docker run --shm-size)"
	case shm && d.Free < gib:
		c.Status, c.Advice = Warn, "data loaders and NCCL need it: give the container more (docker run --shm-size; an "+
			"emptyDir with medium Memory)"
	case d.Free < 16*mib:
		c.Status, c.Advice = Fail, "free space, or name another folder"
	case d.Files > 0 && d.FreeFiles < 100:
		c.Status, c.Value, c.Advice = Fail, fmt.Sprintf("%s: room for %d more files", d.Path, d.FreeFiles),
			"free space, or name another folder"
	case d.Free < gib && !shm:
		c.Status, c.Advice = Warn, "logs, error files and dumps may fill it: free space"
	}
	return c
}

// shmName is the What of the disk that holds shared memory.
const shmName = "shared memory"

// hot is the temperature at which GPUs begin to slow down, in degrees Celsius.
const hot = 90

func gpus(g GPUs, workers int) []Check {
	switch bad := (*topology.VariableError)(nil); {
	case errors.Is(g.Err, fs.ErrPermission) || errors.As(g.Err, &bad): // the error says what to do
		return []Check{{Name: "GPUs", Status: Fail, Value: g.Err.Error()}}
	case g.Err != nil:
		return []Check{{"GPUs", Fail, g.Err.Error(), "the driver does not work: reload it, or restart the machine"}}
	case g.Vendor != topology.NVIDIA:
		value := fmt.Sprintf("%d of %v, of which workers would see %d; their state is not checked", g.Installed, g.Vendor,
			g.Visible)
		return []Check{shared(Check{Name: "GPUs", Status: OK, Value: value}, g, workers)}
	case g.Program == "" && g.Visible == 0:
		return []Check{{Name: "GPUs", Status: OK, Value: "none"}}
	case g.Program == "":
		return []Check{{"GPUs", Warn, fmt.Sprintf("%d, their state is not known", g.Visible), "put nvidia-smi on PATH"}}
	}
	checks := []Check{{Name: "GPUs", Status: OK, Value: fmt.Sprintf("%d, of which workers would see %d", len(g.Health),
		g.Visible)}}
	checks[0] = shared(checks[0], g, workers)
	for _, h := range g.Health {
		checks = append(checks, gpu(h))
	}
	return checks
}

// shared turns the check into a warning if there are more workers than GPUs.
func shared(c Check, g GPUs, workers int) Check {
	if g.Visible > 0 && g.Visible < workers {
		c.Status, c.Advice = Warn, fmt.Sprintf("there are %d workers: some would share a GPU", workers)
	}
	return c
}

func gpu(h topology.GPUHealth) Check {
	c := Check{Name: "GPU " + h.Index, Status: OK, Value: h.Name}
	if h.Temperature >= 0 {
		c.Value += fmt.Sprintf(", %d °C", h.Temperature)
	}
	switch {
	case h.Broken != "":
		c.Status, c.Value, c.Advice = Fail, h.Broken,
			"the GPU does not answer: restart the machine, and take it out of service if that does not help"
	case h.RemapFailed:
		c.Status, c.Value, c.Advice = Fail, c.Value+", remapping its memory failed", "replace the GPU"
	case h.ResetPending:
		c.Status, c.Value, c.Advice = Fail, c.Value+", a reset is pending to remap or retire memory",
			"reset the GPU (nvidia-smi --gpu-reset), or restart the machine"
	case h.UncorrectedErrors > 0:
		c.Status, c.Value = Warn, fmt.Sprintf("%s, %d uncorrectable ECC errors since the driver was loaded", c.Value,
			h.UncorrectedErrors)
		c.Advice = "reset the GPU; replace it if more errors come"
	case len(h.Slowdowns) > 0:
		c.Status, c.Value, c.Advice = Warn, c.Value+", slowed down: "+strings.Join(h.Slowdowns, ", "),
			"one slow GPU slows the whole job: check cooling and power"
	case h.Temperature >= hot:
		c.Status, c.Advice = Warn, "the GPU will slow down: check its cooling"
	}
	return c
}

// xidBound is how long a fault of a GPU matters. lostGPU matches a fault that only a restart of the machine fixes.
const xidBound = time.Hour

var lostGPU = lazyregexp.New(`NVRM: Xid \([^)]*\): 79,`)

func kernelLog(log evidence.KernelLog, now time.Time) Check {
	const name = "kernel log"
	if !log.Readable {
		return Check{Name: name, Status: OK, Value: "this user cannot read it"}
	}
	var recent []evidence.XidEvent
	for _, x := range log.Xids {
		if lostGPU().MatchString(x.Text) {
			return Check{name, Fail, x.Text, "the GPU has fallen off the bus: restart the machine"}
		}
		if now.Sub(x.Time) <= xidBound {
			recent = append(recent, x)
		}
	}
	if n := len(recent); n > 0 {
		return Check{
			name, Warn, fmt.Sprintf("%d Xid messages in the last hour, the last: %s", n, recent[n-1].Text),
			"look up their numbers in NVIDIA's Xid list: some are faults of a program, others of the hardware",
		}
	}
	return Check{Name: name, Status: OK, Value: "no fault of a GPU in the last hour"}
}
