package rdzv

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Parameters configure a [Handler] (seed 000, RendezvousParameters). Make them
// with [NewParameters], which validates.
type Parameters struct {
	// Backend is the registered name of the backend.
	Backend string
	// Endpoint is host[:port] as the backend understands it; may be empty.
	Endpoint string
	// RunID identifies the job.
	RunID string
	// MinNodes and MaxNodes bound the membership, 1 <= MinNodes <= MaxNodes.
	MinNodes int
	MaxNodes int
	// Config holds the backend's own options (--rdzv-conf).
	Config map[string]string
}

// NewParameters validates p as seed 000 does and returns it.
func NewParameters(p Parameters) (Parameters, error) {
	switch {
	case p.Backend == "":
		return Parameters{}, errors.New("rendezvous backend: the name is empty")
	case p.MinNodes < 1:
		return Parameters{}, fmt.Errorf("rendezvous min nodes %d: must be at least 1", p.MinNodes)
	case p.MaxNodes < p.MinNodes:
		return Parameters{}, fmt.Errorf("rendezvous max nodes %d: must be at least min nodes, %d", p.MaxNodes, p.MinNodes)
	}
	return p, nil
}

// Get returns the option key, or fallback where it is not given.
func (p Parameters) Get(key, fallback string) string {
	if v, ok := p.Config[key]; ok {
		return v
	}
	return fallback
}

// Bool returns the option key as a truth value: 1, true, t, yes, y or 0, false,
// f, no, n in any case; fallback where it is not given.
func (p Parameters) Bool(key string, fallback bool) (bool, error) {
	v, ok := p.Config[key]
	if !ok {
		return fallback, nil
	}
	switch strings.ToLower(v) {
	case "1", "true", "t", "yes", "y":
		return true, nil
	case "0", "false", "f", "no", "n":
		return false, nil
	}
	return false, fmt.Errorf("rendezvous option %s=%q: not a truth value; use true or false", key, v)
}

// Int returns the option key as a decimal integer, which blanks may surround;
// fallback where it is not given.
func (p Parameters) Int(key string, fallback int) (int, error) {
	v, ok := p.Config[key]
	if !ok {
		return fallback, nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(v))
	if err != nil {
		return 0, fmt.Errorf("rendezvous option %s=%q: not an integer", key, v)
	}
	return n, nil
}
