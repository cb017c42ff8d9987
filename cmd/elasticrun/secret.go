package main

import (
	"fmt"
	"io"
	"os"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/config/safefile"
	"github.com/elasticrun/elasticrun/internal/exitcode"
	"github.com/elasticrun/elasticrun/pkg/agent"
)

// runSecret prints a new secret.
func runSecret(args []string, stdout io.Writer) error {
	if err := config.LoadSecret(args); err != nil {
		return err
	}
	if f, ok := stdout.(*os.File); ok {
		if err := safefile.Hide(f); err != nil {
			err = fmt.Errorf("make the secret's file readable for its owner alone, so nothing was written: %w", err)
			return exitCode(fail(ending{code: exitOutput, reason: exitcode.ReasonOutput, err: err}))
		}
	}
	_, err := fmt.Fprintln(stdout, config.DrawSecret())
	if err == nil || isReaderGone(err) {
		return err
	}
	lost := conclude(agent.RunResult{}, err) // it advises about a full disk
	lost.code, lost.reason = exitOutput, exitcode.ReasonOutput
	return exitCode(fail(lost))
}
