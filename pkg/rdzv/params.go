package rdzv

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Parameters configures a [Handler], like torch's RendezvousParameters. [NewParameters] validates it.
type Parameters struct {
	// Backend is the registered name of the backend.
	Backend string
	// Endpoint is host[:port], or a list of these with commas. Its meaning depends on the backend; it may be empty.
	Endpoint string
	// RunID identifies the job.
	RunID string
	// MinNodes and MaxNodes bound the number of nodes: 1 <= MinNodes <= MaxNodes.
	MinNodes int
	MaxNodes int
	// Config has the backend's own options (--rdzv-conf).
	Config map[string]string
}

// NewParameters returns p if it is valid, by the rules of torch's RendezvousParameters.
func NewParameters(p Parameters) (Parameters, error) {
	switch {
	case p.Backend == "":
		return Parameters{}, errors.New("rendezvous backend: the name is empty")
	case p.MinNodes < 1:
		return Parameters{}, fmt.Errorf("rendezvous min nodes %d: must be at least 1", p.MinNodes)
	case p.MaxNodes < p.MinNodes:
		return Parameters{}, fmt.Errorf("rendezvous max nodes %d: must be at least min nodes, %d", p.MaxNodes,
			p.MinNodes)
	}
	return p, nil
}

// Get returns the option key, or fallback if it is not set.
func (p Parameters) Get(key, fallback string) string {
	if v, ok := p.Config[key]; ok {
		return v
	}
	return fallback
}

// Bool returns the option key as a truth value, or fallback if it is not set. It accepts 1, true, t, yes and y, and 0,
// false, f, no and n, in any case.
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

// Int returns the option key as a decimal integer, or fallback if it is not set. Blanks around the number are ignored.
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
