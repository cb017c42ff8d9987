package doctor

import (
	"net/netip"
	"time"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/preview"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/evidence"
)

// facts is what is known of a machine and a job.
type facts struct {
	// Nodes is the job's maximum number of machines, Workers the number of workers on this one.
	Nodes, Workers int
	// Python is the interpreter that would run the script; nil with --no-python.
	Python *Python
	// Script is the script, program or module; it may be empty. ScriptErr says why it cannot be run. ScriptDoubt warns
	// that the command line probably runs it in the wrong way. Module is about the module with -m, if it is known.
	Script      string
	ScriptErr   error
	ScriptDoubt string
	Module      *Module
	// PortErr says why none of this node's given ports can be used; nil if one can, or if none were given.
	PortErr error
	// HostName is this machine's name and its addresses.
	HostName Name
	// Endpoints is what was found at the rendezvous endpoints; Refusal says why the job would be refused there.
	Endpoints []preview.Endpoint
	Refusal   error
	// Keepers says which agents would keep the job's store; "" if none of several nodes would.
	Keepers string
	// Admission is whom the job's store serves; zero for a job of one node.
	Admission config.Admission
	Disks     []Disk
	GPUs      GPUs
	Kernel    evidence.KernelLog
	Limits    Limits
	Memory    Memory
	Now       time.Time
}

// Name is a host name and what it resolves to.
type Name struct {
	Host  string
	Addrs []netip.Addr
	// Local holds those of Addrs that are this machine's.
	Local []netip.Addr
	Err   error
}

// Disk is the file system of a folder.
type Disk struct {
	// What is the purpose of the folder, Path the folder.
	What, Path  string
	Total, Free uint64 // in bytes, for this user
	// Files is the number of files that it can hold, 0 for no limit; FreeFiles is how many more it can hold.
	Files, FreeFiles uint64
	Err              error
}

// GPUs is what the drivers' files and nvidia-smi report.
type GPUs struct {
	// Vendor is the maker of the GPUs.
	Vendor topology.Vendor
	// Program is the path of nvidia-smi; empty if it is not installed.
	Program string
	// Health is the state of NVIDIA's GPUs.
	Health []topology.GPUHealth
	Err    error
	// Visible is the number of GPUs that workers would see, Installed the number without the variables that hide GPUs.
	// Installed is 0 for NVIDIA's: Health lists those.
	Visible, Installed int
}

// unlimited stands for no limit.
const unlimited = ^uint64(0)

// Limits are the limits of processes. Zero means unknown, except in Core.
type Limits struct {
	// NoFile, MemLock and Core are the hard limits on open files, on locked memory and on core files, the last two in
	// bytes.
	NoFile, MemLock, Core uint64
	CorePattern           string
	// PIDMax is the kernel's highest pid. CgroupPIDs bounds the processes and threads of this cgroup; CgroupPIDsUsed is
	// their number.
	PIDMax, CgroupPIDs, CgroupPIDsUsed uint64
	// RDMA reports whether there are InfiniBand or RoCE devices.
	RDMA bool
}

// Memory is the machine's memory in bytes. Zero means unknown.
type Memory struct {
	Total, Available uint64
	// CgroupMax is this cgroup's limit, CgroupUsed its usage.
	CgroupMax, CgroupUsed uint64
}
