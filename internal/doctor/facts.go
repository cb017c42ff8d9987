package doctor

import (
	"net/netip"
	"time"

	"github.com/elasticrun/elasticrun/internal/preview"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/evidence"
)

// Facts is what was read of a machine, with a job in mind.
type Facts struct {
	// Nodes is the most that the job may have, Workers how many are on this one.
	Nodes, Workers int
	// Interpreter is the Python that is to run the script; nil for none.
	Interpreter *Program
	// Script is what is to be run; empty where none was given. ScriptErr is why it cannot be.
	Script    string
	ScriptErr error
	// PortErr is why the ports that this node was given cannot be listened on; nil where they can, or none were given.
	PortErr error
	// HostName is this machine's, and what it resolves to.
	HostName Name
	// Endpoints is what is where the nodes meet; Refusal is why the job would be turned away there.
	Endpoints []preview.Endpoint
	Refusal   error
	Disks     []Disk
	GPUs      GPUs
	Kernel    evidence.KernelLog
	Limits    Limits
	Memory    Memory
	Now       time.Time
}

// Program is a program that was started to see whether it starts.
type Program struct {
	Path string
	Took time.Duration
	Err  error // nil: it has ended with 0
}

// Name is a host name and what it resolves to.
type Name struct {
	Host  string
	Addrs []netip.Addr
	// Local are those of Addrs that are this machine's.
	Local []netip.Addr
	Err   error
}

// Disk is the file system that a folder is on.
type Disk struct {
	// What says what it is for; Path is the folder that was asked about.
	What, Path  string
	Total, Free uint64 // in bytes, for this user
	// Files and FreeFiles count what it can hold; Files is 0 where it has no limit.
	Files, FreeFiles uint64
	Err              error
}

// GPUs are what nvidia-smi says.
type GPUs struct {
	// Program is nvidia-smi's path; empty where there is none.
	Program string
	Health  []topology.GPUHealth
	Err     error
	// Visible is how many a worker would see.
	Visible int
}

// Unlimited is a limit that is none.
const Unlimited = ^uint64(0)

// Limits are those of processes. Zero is not known, but for Core.
type Limits struct {
	// NoFile is the hard limit of open files, MemLock of locked memory in bytes, Core of core files in bytes.
	NoFile, MemLock, Core uint64
	CorePattern           string
	// PIDMax is the kernel's last pid; CgroupPIDs is how many processes and threads this cgroup may have, CgroupPIDsUsed how many it has.
	PIDMax, CgroupPIDs, CgroupPIDsUsed uint64
	// RDMA says that there are InfiniBand or RoCE devices.
	RDMA bool
}

// Memory is in bytes. Zero is not known.
type Memory struct {
	Total, Available uint64
	// CgroupMax is this cgroup's limit, CgroupUsed what it has taken of it.
	CgroupMax, CgroupUsed uint64
}
