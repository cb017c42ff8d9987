package doctor

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/elasticrun/elasticrun/internal/interpreter"
	"github.com/elasticrun/elasticrun/internal/oneshot"
	"github.com/elasticrun/elasticrun/internal/topology"
)

// slowStart is longer than any interpreter on a local disk takes to start, slowImport longer than the import of torch
// takes there.
const (
	slowStart  = 5 * time.Second
	slowImport = 30 * time.Second
)

// python judges the interpreter, and its torch if it was asked for. A script need not use torch, so a torch that is
// missing or broken is a warning.
func python(p Python, g GPUs) []Check {
	checks := []Check{started(p)}
	if u := p.Unused; u != nil {
		checks = append(checks, unused(p, *u))
	}
	if p.AskedTorch && p.Answer.Python != "" {
		checks = append(checks, torch(p, g))
	}
	return checks
}

func started(p Python) Check {
	c := Check{Name: "interpreter", Status: OK, Value: fmt.Sprintf("%s (from %s)", p.Path, p.Source)}
	imported := p.AskedTorch && p.Answer.Python != "" // then Took and Err are about torch
	switch {
	case p.Path == "":
		c.Status, c.Value = Fail, p.Err.Error()
	case p.Err != nil && !imported:
		c.Status, c.Value = Fail, fmt.Sprintf("%s: %v", c.Value, p.Err)
		c.Advice = "repair it, or set PYTHON_EXEC to another one"
	case p.Answer.Python == "":
		c.Status, c.Value = Warn, c.Value+" does not answer as Python does"
		c.Advice = "set PYTHON_EXEC to a Python interpreter, or use --no-python if the script is a program"
	default:
		if p.Answer.Executable != "" && p.Answer.Executable != p.Path {
			c.Value += ", which starts " + p.Answer.Executable
		}
		c.Value += ", Python " + p.Answer.Python
		if imported {
			break
		}
		c.Value += fmt.Sprintf(", starts and ends in %v", p.Answer.Took.Round(time.Millisecond))
		if p.Answer.Took > slowStart {
			c.Status = Warn
			c.Advice = "every worker takes this long: if the interpreter is on a slow file server, move it to a local disk"
		}
	}
	return c
}

func unused(p Python, u interpreter.UnusedEnvironment) Check {
	value := fmt.Sprintf("%s=%s is active, but the run uses %s", u.Variable, u.Root, p.Path)
	if u.Err != nil {
		return Check{
			"environment", Warn, fmt.Sprintf("%s: %s/bin/python: %v", value, strings.TrimSuffix(u.Root, "/"), u.Err),
			"if it is not needed, deactivate it",
		}
	}
	use := interpreter.Suggestion{Path: strings.TrimSuffix(u.Root, "/") + "/bin/python"}
	return Check{"environment", Warn, value, "to use the environment: " + use.Command() + " ..."}
}

func torch(p Python, g GPUs) Check {
	c := Check{Name: "torch", Status: Warn}
	t := p.Answer.Torch
	switch {
	case t == nil && errors.Is(p.Err, oneshot.ErrLimit):
		c.Value = fmt.Sprintf("import torch: %v", p.Err)
		c.Advice = "find out what it waits for, such as a slow file server or a driver that hangs"
	case t == nil && p.Err != nil:
		c.Value, c.Advice = fmt.Sprintf("import torch: %v", p.Err), "reinstall torch"
	case t == nil:
		c.Value, c.Advice = "import torch ended the interpreter", "reinstall torch"
	case t.Missing && p.Other != nil:
		c.Value = "none in " + p.Path
		c.Advice = fmt.Sprintf("%s has torch: %s ...", p.Other.Path, p.Other.Command())
	case t.Missing:
		c.Value = "none in " + p.Path
		c.Advice = "if the script needs torch, install it there, or set PYTHON_EXEC to an interpreter that has it"
	case t.Problem != "":
		c.Value, c.Advice = "import torch: "+t.Problem, "reinstall torch, or install what is missing"
	default:
		c.Status = OK
		c.Value = fmt.Sprintf("%s for %s, starts and is imported in %v", t.Version, t.Device,
			p.Answer.Took.Round(time.Millisecond))
		if p.Answer.Took > slowImport {
			c.Status = Warn
			c.Advice = "every worker takes this long: if torch is on a slow file server, move it to a local disk"
		}
		if want := platforms[g.Vendor]; g.Visible > 0 && want != "" && !strings.HasPrefix(t.Device, want) {
			c.Status, c.Advice = Warn, fmt.Sprintf("it cannot use this machine's GPUs: install a torch for %s", want)
		}
	}
	return c
}

// platforms are what torch must be built for to use the GPUs of a vendor.
var platforms = map[topology.Vendor]string{topology.NVIDIA: "CUDA", topology.AMD: "ROCm"}

// module judges the module that python -m would run.
func module(name string, m Module) Check {
	c := Check{Name: "script", Status: OK, Value: "module " + name + " is there"}
	switch {
	case m.Unseen:
		c.Value = "module " + name + " is not looked for: the interpreter sees other files than elasticrun"
		return c
	case m.Runs == interpreter.Present:
		return c
	case m.Exists == interpreter.Present:
		c.Status, c.Value = Warn, "module "+name+" is a package without __main__.py, which python -m cannot run"
		c.Advice = "name a module in it"
		return c
	}
	c.Status, c.Value = Warn, "module "+name+" is not in the working directory or among the interpreter's files"
	if m.Runs == interpreter.Absent {
		c.Status = Fail
	}
	c.Advice = "start in the folder that has it, or install it for this interpreter"
	if m.Other != nil {
		c.Advice = fmt.Sprintf("%s has it: %s ...", m.Other.Path, m.Other.Command())
	}
	return c
}
