package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/listen"
	"github.com/elasticrun/elasticrun/internal/preview"
	"github.com/elasticrun/elasticrun/internal/workerspec"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// Err returns an *agent.UnfitError with the failed checks, or nil.
func (r Report) Err() error {
	var problems []string
	for _, c := range r.with(Fail) {
		problems = append(problems, c.line())
	}
	if problems == nil {
		return nil
	}
	return &agent.UnfitError{Err: errors.New(strings.Join(problems, "; "))}
}

// Examine checks this machine for elasticrun doctor, and imports torch.
func Examine(ctx context.Context, cfg *config.Config, version string) (Report, error) {
	f, err := read(ctx, cfg, version, true)
	if err != nil {
		return Report{}, err
	}
	return newReport(f, version), nil
}

func newReport(f facts, version string) Report {
	return Report{Version: version, Host: f.HostName.Host, Checks: judge(f)}
}

// read reads the facts of this machine that matter for a job. Slow readers run concurrently. With importTorch the
// interpreter imports torch, which takes seconds.
func read(ctx context.Context, cfg *config.Config, version string, importTorch bool) (facts, error) {
	root := os.DirFS("/")
	f := facts{
		Nodes: cfg.MaxNodes, Workers: cfg.NprocPerNode, Script: cfg.Script, Now: time.Now(),
		Limits: readLimits(root), Memory: readMemory(root), Kernel: evidence.WholeKernelLog(time.Now()),
	}
	if cfg.MaxNodes > 1 {
		f.Admission, f.Keepers = cfg.Admission(), preview.Keepers(cfg)
	}
	if cfg.Rendezvous.Local {
		f.Nodes = 1 // all nodes are on this machine
	}
	for _, d := range []struct{ what, path string }{
		{"log folder", cfg.LogDir}, {"temporary files", os.TempDir()}, {shmName, "/dev/shm"},
	} {
		if d.path != "" && d.path != os.DevNull {
			path, err := filepath.Abs(d.path)
			if err != nil {
				return facts{}, err
			}
			f.Disks = append(f.Disks, readDisk(d.what, path))
		}
	}
	// an error needs --log-dir, whose disk is the first
	if _, err := workerlog.PlanLogDir(cfg.LogDir, cfg.RunID); err != nil {
		f.Disks[0].Err = err
	}
	var reading sync.WaitGroup
	if !cfg.NoPython {
		reading.Go(func() {
			p := readPython(ctx, cfg, importTorch)
			f.Python = &p
			if cfg.Module {
				f.Module = readModule(cfg, p)
			}
		})
		if cfg.Script != "" {
			f.ScriptErr, f.ScriptDoubt = workerspec.CheckScript(cfg), workerspec.ScriptDoubt(cfg)
		}
	} else if cfg.Script != "" {
		f.ScriptErr = checkProgram(cfg.Script)
	}
	reading.Go(func() { f.HostName = readHostName(ctx) })
	reading.Go(func() { f.GPUs = readGPUs(ctx, workerspec.GPUKind(cfg)) })
	var err error
	reading.Go(func() {
		f.PortErr = listen.Explain(cfg, listen.CheckPorts(ctx, cfg))
		if f.Endpoints, err = preview.ProbeEndpoints(ctx, cfg, version); err == nil {
			if f.Refusal = workerspec.CheckEndpoint(ctx, cfg); f.Refusal == nil {
				f.Refusal = listen.Explain(cfg, preview.Refusal(cfg, f.Endpoints))
			}
		} else if errors.As(err, new(*config.UsageError)) { // the folder of a local endpoint cannot be used
			f.Refusal, err = err, nil
		}
	})
	reading.Wait()
	return f, err
}

// checkProgram checks whether a program could be started.
func checkProgram(name string) error {
	if _, err := exec.LookPath(name); err != nil {
		return fmt.Errorf("program %q: %w", name, err)
	}
	return nil
}
