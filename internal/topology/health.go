package topology

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/elasticrun/elasticrun/internal/lookpath"
)

// GPUHealth is the state of one GPU. Values that nvidia-smi does not know, or that the GPU does not have, are 0, -1 or
// false.
type GPUHealth struct {
	Index, UUID, Name string
	// Broken is the text that nvidia-smi printed instead of values because the GPU does not respond; empty if it
	// responds.
	Broken string
	// Temperature is in degrees Celsius; -1 if unknown.
	Temperature int
	// UncorrectedErrors is the number of ECC errors since the driver was loaded.
	UncorrectedErrors int
	// ResetPending says that the next reset will retire pages or remap rows. RemapFailed says that no spare rows are
	// left.
	ResetPending, RemapFailed bool
	// Slowdowns are the reasons, other than the configured power limit, why the clocks are reduced now.
	Slowdowns []string
}

// healthFields are the fields of --query-gpu in the order of parseHealth. Drivers before 535 have other names for the
// last three.
const healthFields = "index,uuid,name,temperature.gpu,ecc.errors.uncorrected.volatile.total,retired_pages.pending," +
	"clocks_event_reasons.hw_thermal_slowdown,clocks_event_reasons.hw_power_brake_slowdown," +
	"clocks_event_reasons.sw_thermal_slowdown"

// slowdowns are the meanings of the last three of healthFields, for people.
var slowdowns = [...]string{"the hardware is too hot", "a power brake", "it is too hot"}

// FindSMI returns the path of nvidia-smi, or "" if it is not on PATH. env has the signature of [os.LookupEnv].
func FindSMI(env func(string) (string, bool)) string {
	program, err := lookpath.Program(env, "nvidia-smi")
	if err != nil {
		return ""
	}
	return program
}

// Health asks nvidia-smi for the state of all GPUs of this machine. It uses the options Env and Timeout; the timeout
// applies to each call of nvidia-smi. The list is empty if there is no GPU or no nvidia-smi.
func Health(ctx context.Context, opts GPUOptions) ([]GPUHealth, error) {
	opts = opts.withDefaults()
	program, timeout := FindSMI(opts.Env), opts.Timeout
	if program == "" {
		return nil, nil
	}
	out, err := runSMI(ctx, program, timeout, "--query-gpu="+healthFields)
	if err != nil && ctx.Err() == nil && strings.Contains(err.Error(), "is not a valid field") {
		out, err = runSMI(
			ctx,
			program,
			timeout,
			"--query-gpu="+strings.ReplaceAll(healthFields, "clocks_event_reasons", "clocks_throttle_reasons"),
		)
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s for the state of the GPUs: %w", program, err)
	}
	all, err := parseHealth(out)
	if err != nil {
		return nil, fmt.Errorf("ask %s for the state of the GPUs: %w", program, err)
	}
	// Older GPUs cannot remap rows, and older drivers do not have this query.
	const remapped = "--query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure"
	if out, err = runSMI(ctx, program, timeout, remapped); err == nil {
		addRemapped(all, out)
	}
	return all, nil
}

// parseHealth reads lines of healthFields.
func parseHealth(out string) ([]GPUHealth, error) {
	var all []GPUHealth
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		f := strings.Split(line, ", ")
		if len(f) != 6+len(slowdowns) {
			return nil, fmt.Errorf("it printed %.200q in place of %d values", line, 6+len(slowdowns))
		}
		h := GPUHealth{Index: f[0], UUID: f[1], Name: f[2], Temperature: -1, ResetPending: yes(f[5])}
		for _, value := range f {
			if lost(value) {
				h.Broken = fmt.Sprintf("nvidia-smi says %q of it", value)
			}
		}
		if n, err := strconv.Atoi(f[3]); err == nil {
			h.Temperature = n
		}
		if n, err := strconv.Atoi(f[4]); err == nil {
			h.UncorrectedErrors = n
		}
		for i, why := range slowdowns {
			if f[6+i] == "Active" {
				h.Slowdowns = append(h.Slowdowns, why)
			}
		}
		all = append(all, h)
	}
	return all, nil
}

// addRemapped reads lines of "UUID, pending, failure".
func addRemapped(all []GPUHealth, out string) {
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), ", ")
		for i := range all {
			if len(f) == 3 && all[i].UUID == f[0] {
				all[i].ResetPending = all[i].ResetPending || yes(f[1])
				all[i].RemapFailed = yes(f[2])
			}
		}
	}
}

// yes reads a switch that is printed as a word or as a number.
func yes(value string) bool { return value == "Yes" || value == "1" }

// lost reports whether a value means that the GPU does not respond.
func lost(value string) bool {
	return strings.Contains(value, "ERR!") || strings.Contains(value, "Unknown Error") ||
		strings.Contains(value, "GPU is lost") ||
		strings.Contains(value, "GPU requires reset")
}
