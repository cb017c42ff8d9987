package main

import (
	"context"
	"io"

	"github.com/elasticrun/elasticrun/internal/config"
	"github.com/elasticrun/elasticrun/internal/doctor"
	"github.com/elasticrun/elasticrun/internal/launch"
)

// runDoctor checks this machine. Its error lists the checks that failed.
func runDoctor(args []string, stdout io.Writer) error {
	cfg, asJSON, err := config.LoadDoctor(args, launch.Machine{})
	if err != nil {
		return err
	}
	f, err := doctor.Examine(context.Background(), cfg, doctor.Options{Version: version, Torch: true})
	if err != nil {
		return err
	}
	r := doctor.NewReport(f, version)
	if err := printResult(stdout, r, asJSON); err != nil {
		return err
	}
	return r.Err()
}
