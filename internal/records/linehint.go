package records

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/elasticrun/elasticrun/internal/printable"
	"github.com/elasticrun/elasticrun/pkg/report"
)

// maxPath is how much of a list of folders a hint shows, in bytes.
const maxPath = 300

// lineHint returns the next step after an error that names its cause, or "".
func (j job) lineHint(summary string) string {
	for _, h := range [...]struct {
		pattern string
		advice  func(j job, found []string) string
	}{
		{`([^\s:']+\.so[\w.]*): cannot open shared object file`, job.libraryHint},
		{
			`env: .*\\r['’]: No such file|\^M: bad interpreter|\$'\\r': command not found`,
			fixed(`a script's lines end in CRLF: run sed -i 's/\r$//' on it`),
		},
		{ // torch's store, whose message misspells built; the store of torchrun's agent ignores USE_LIBUV
			`use_libuv was requested but PyTorch was buil[dt] without libuv`,
			fixed("this torch was built without libuv: set USE_LIBUV=0 and TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"),
		},
		{`Torch not compiled with CUDA enabled`, fixed("this torch was built without CUDA: install a build with CUDA")},
		{`No CUDA GPUs are available`, job.noGPUHint},
		{
			`Found no NVIDIA driver on your system`,
			fixed("check with nvidia-smi; a container needs --gpus all (Docker) or --nv (Apptainer)"),
		},
		{
			`NVIDIA driver on your system is too old|CUDA driver version is insufficient`,
			fixed("update NVIDIA's driver, or install a torch that was built for an older CUDA"),
		},
		{
			`CUDA error: invalid device ordinal`,
			fixed("use the GPU with the number LOCAL_RANK; --nproc-per-node gpu starts one worker for each GPU"),
		},
		{
			`no kernel image is available for execution on the device`,
			fixed("this torch was not built for this GPU: install a build that supports it"),
		},
		{`(?i)EADDRINUSE|address already in use`, func(_ job, _ []string) string { return portHint(summary) }},
		{
			`</torch_.*No space left on device|/dev/shm.*No space left on device|No space left on device.*/dev/shm`,
			fixed("/dev/shm is full: make it larger (docker run --shm-size), or use fewer DataLoader workers"),
		},
		{`No space left on device(?:: '([^']+)')?`, job.fullHint},
		{`Permission denied: '([^']+)'`, job.permissionHint},
	} {
		if found := regexp.MustCompile(h.pattern).FindStringSubmatch(summary); found != nil {
			return h.advice(j, found)
		}
	}
	return ""
}

// fixed returns advice that does not depend on the error's details.
func fixed(text string) func(job, []string) string {
	return func(job, []string) string { return text }
}

// libraryHint is for a shared library that the dynamic loader did not find.
func (j job) libraryHint(found []string) string {
	where := "LD_LIBRARY_PATH is not set"
	if path := j.get("LD_LIBRARY_PATH"); path != "" {
		where = "LD_LIBRARY_PATH is " + report.Head(path, maxPath)
	}
	return fmt.Sprintf("install the package that has %s, or add its folder to LD_LIBRARY_PATH (%s)", found[1], where)
}

// noGPUHint is for a worker that sees no GPU although its torch was built with CUDA.
func (j job) noGPUHint([]string) string {
	if hidden, set := j.env("CUDA_VISIBLE_DEVICES"); set && (strings.TrimSpace(hidden) == "" || hidden == "-1") {
		return fmt.Sprintf("CUDA_VISIBLE_DEVICES=%q hides every GPU: unset it", hidden)
	}
	return "check with nvidia-smi -L and CUDA_VISIBLE_DEVICES; a container needs --gpus all (Docker) or --nv (Apptainer)"
}

// portHint is for a worker whose port is in use by another program.
func portHint(summary string) string {
	port := regexp.MustCompile(`port[:= ]+(\d+)|[\d\]]:(\d+)`).FindStringSubmatch(summary)
	if port == nil {
		return "run ss -ltnp to see which program has the port"
	}
	return fmt.Sprintf("run ss -ltnp 'sport = :%s' to see which program has the port", port[1]+port[2])
}

// fullHint is for a file system that is full.
func (j job) fullHint(found []string) string {
	if found[1] == "" {
		return "make room: run df and df -i to see which file system is full"
	}
	dir := printable.ShellWord(filepath.Dir(j.abs(found[1])))
	return fmt.Sprintf("make room: run df %s and df -i %s to see what is full", dir, dir)
}

// permissionHint is for a file that the worker may not use.
func (j job) permissionHint(found []string) string {
	return fmt.Sprintf("run namei -l %s to see which folder or file refuses user %d", printable.ShellWord(j.abs(found[1])),
		os.Geteuid())
}
