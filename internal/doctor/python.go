package doctor

import (
	"context"
	"os"
	"time"

	"github.com/elasticrun/elasticrun/internal/caller"
	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/interpreter"
)

// startBound bounds starting and ending an interpreter, torchBound importing torch in it too.
const (
	startBound = 30 * time.Second
	torchBound = 60 * time.Second
)

// Python is the interpreter that would run the script, and what it answered.
type Python struct {
	Path, Source string
	// Err says why there is no interpreter, or why it did not end with 0. Then Answer is what it said before.
	Err    error
	Answer interpreter.Answer
	// AskedTorch says that it was asked to import torch.
	AskedTorch bool
	// Unused is an active environment that is not used; nil for none.
	Unused *interpreter.UnusedEnvironment
	// Other is an interpreter that has the module which this one lacks: torch, or the one to run; nil for none.
	Other *interpreter.Suggestion
}

// readPython finds the interpreter of a launch and starts it. With torch, it imports torch.
func readPython(ctx context.Context, cfg *config.Config, torch bool) Python {
	path, source, err := interpreter.Find(os.LookupEnv)
	p := Python{Path: path, Source: source, Err: err, AskedTorch: torch}
	if err != nil {
		return p
	}
	p.Unused = interpreter.Unused(path, source, os.LookupEnv)
	q := interpreter.Question{Env: caller.Without(config.WithoutSecrets(os.Environ())), Torch: torch, Limit: startBound}
	if torch {
		q.Limit = torchBound
	}
	p.Answer, p.Err = interpreter.Ask(ctx, path, q)
	if p.Answer.Torch != nil && p.Answer.Torch.Missing {
		p.Other = another(cfg, path, "torch")
	}
	return p
}

func another(cfg *config.Config, path, module string) *interpreter.Suggestion {
	wd, err := os.Getwd()
	if err != nil {
		return nil
	}
	search := interpreter.Search{Python: path, Module: module, WorkDir: wd, Env: os.LookupEnv}
	if !cfg.Module {
		search.Script = cfg.Script
	}
	if found, ok := interpreter.Another(search); ok {
		return &found
	}
	return nil
}

// Module is what is known of a module that python -m would run.
type Module struct {
	// Runs is about the module as a program, Exists about the module.
	Runs, Exists interpreter.Presence
	// Unseen says that it could not be looked for: the interpreter sees other files.
	Unseen bool
	// Other is an interpreter that has the module; nil for none.
	Other *interpreter.Suggestion
}

// readModule looks for the module in the working directory and where the interpreter has answered that it finds
// modules. It returns nil without an answer.
func readModule(cfg *config.Config, p Python) *Module {
	wd, err := os.Getwd()
	if err != nil || p.Answer.Python == "" {
		return nil
	}
	if !p.Answer.SameFiles {
		return &Module{Unseen: true}
	}
	in := p.Answer.Installation(p.Path)
	m := Module{Runs: in.Runs(cfg.Script, wd)}
	in.Folders = append([]string{wd}, in.Folders...)
	if m.Exists = in.Has(cfg.Script); m.Exists != interpreter.Present {
		m.Other = another(cfg, p.Path, cfg.Script)
	}
	return &m
}
