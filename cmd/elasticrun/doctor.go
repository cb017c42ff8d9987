package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/doctor"
	"github.com/elasticrun/elasticrun/internal/preview"
	"github.com/elasticrun/elasticrun/internal/topology"
	"github.com/elasticrun/elasticrun/pkg/agent"
	"github.com/elasticrun/elasticrun/pkg/evidence"
	"github.com/elasticrun/elasticrun/pkg/workerlog"
)

// checkMachine checks this machine by the arguments.
func checkMachine(args []string, stdout io.Writer) error {
	cfg, asJSON, err := config.LoadDoctor(args, machine{})
	if err != nil {
		return err
	}
	f, err := examine(context.Background(), cfg)
	if err != nil {
		return err
	}
	r := judge(f)
	if err := write(stdout, r, asJSON); err != nil {
		return err
	}
	return unfit(r)
}

// unfit is the error of a machine of which a check failed, or nil.
func unfit(r doctor.Report) error {
	if problems := r.Problems(); problems != "" {
		return &agent.UnfitError{Err: errors.New(problems)}
	}
	return nil
}

func judge(f doctor.Facts) doctor.Report {
	return doctor.Report{Version: version, Host: f.HostName.Host, Checks: doctor.Judge(f)}
}

// examine reads what there is to know of this machine for a job. What is slow is read side by side.
func examine(ctx context.Context, cfg *config.Config) (doctor.Facts, error) {
	root := os.DirFS("/")
	f := doctor.Facts{
		Nodes: cfg.MaxNodes, Workers: cfg.NprocPerNode, Script: cfg.Script, Now: time.Now(),
		Limits: doctor.ReadLimits(root), Memory: doctor.ReadMemory(root), Kernel: evidence.WholeKernelLog(time.Now()),
	}
	for _, d := range []struct{ what, path string }{
		{"log folder", cfg.LogDir}, {"temporary files", os.TempDir()}, {doctor.ShmName, "/dev/shm"},
	} {
		if d.path != "" && d.path != os.DevNull {
			path, err := filepath.Abs(d.path)
			if err != nil {
				return doctor.Facts{}, err
			}
			f.Disks = append(f.Disks, doctor.ReadDisk(d.what, path))
		}
	}
	if _, err := workerlog.PlanLogDir(cfg.LogDir, cfg.RunID); err != nil { // in the first of these folders
		f.Disks[0].Err = err
	}
	var reading sync.WaitGroup
	if !cfg.NoPython {
		reading.Go(func() { p := readPython(ctx); f.Interpreter = &p })
		if cfg.Script != "" {
			f.ScriptErr = checkScript(cfg)
		}
	} else if cfg.Script != "" {
		f.ScriptErr = checkProgram(cfg.Script)
	}
	reading.Go(func() { f.HostName = doctor.ReadHostName(ctx) })
	reading.Go(func() { f.GPUs = doctor.ReadGPUs(ctx) })
	var err error
	reading.Go(func() {
		f.PortErr = explain(cfg, portsTaken(ctx, cfg))
		if f.Endpoints, err = lookAround(ctx, cfg); err == nil {
			f.Refusal = explain(cfg, preview.Refusal(cfg, f.Endpoints))
		}
	})
	reading.Wait()
	return f, err
}

// checkProgram finds out whether a program could be started.
func checkProgram(name string) error {
	if _, err := exec.LookPath(name); err != nil {
		return fmt.Errorf("program %q: %w", name, err)
	}
	return nil
}

// readPython finds the interpreter and starts it.
func readPython(ctx context.Context) doctor.Program {
	path, _, err := topology.Python(os.LookupEnv)
	if err != nil {
		return doctor.Program{Path: "python", Err: err}
	}
	return doctor.ReadProgram(ctx, path, "-c", "pass")
}
