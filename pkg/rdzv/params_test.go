package rdzv

import (
	"errors"
	"strings"
	"testing"
)

func TestNewParameters(t *testing.T) {
	tests := []struct {
		name string
		p    Parameters
		want string // in the error; empty is none
	}{
		{"good", Parameters{Backend: "c10d", MinNodes: 1, MaxNodes: 1}, ""},
		{
			"no endpoint and no run id are the backend's business",
			Parameters{Backend: "static", MinNodes: 2, MaxNodes: 3},
			"",
		},
		{"no backend", Parameters{MinNodes: 1, MaxNodes: 1}, "name is empty"},
		{"no nodes", Parameters{Backend: "b", MaxNodes: 1}, "min nodes 0"},
		{"negative nodes", Parameters{Backend: "b", MinNodes: -1, MaxNodes: 1}, "min nodes -1"},
		{"max below min", Parameters{Backend: "b", MinNodes: 4, MaxNodes: 2}, "max nodes 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := NewParameters(tt.p)
			if tt.want == "" {
				if err != nil || got.Backend != tt.p.Backend {
					t.Fatalf("NewParameters = %+v, %v", got, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestParametersGetters(t *testing.T) {
	p := Parameters{Config: map[string]string{
		"yes": "Y", "true": "true", "one": "1", "no": "N", "false": "F", "zero": "0",
		"n": " 42 ", "bad": "maybe", "empty": "",
	}}
	for key, want := range map[string]bool{
		"yes": true, "true": true, "one": true, "no": false, "false": false,
		"zero": false,
	} {
		if got, err := p.Bool(key, !want); err != nil || got != want {
			t.Errorf("Bool(%q) = %v, %v; want %v", key, got, err, want)
		}
	}
	if got, err := p.Bool("missing", true); err != nil || !got {
		t.Errorf("Bool(missing) = %v, %v", got, err)
	}
	if got, err := p.Int("n", 0); err != nil || got != 42 {
		t.Errorf("Int(n) = %v, %v", got, err)
	}
	if got, err := p.Int("missing", 7); err != nil || got != 7 {
		t.Errorf("Int(missing) = %v, %v", got, err)
	}
	for _, key := range []string{"bad", "empty"} {
		if _, err := p.Bool(key, false); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("Bool(%q) error %v does not name it", key, err)
		}
		if _, err := p.Int(key, 0); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("Int(%q) error %v does not name it", key, err)
		}
	}
	if got := p.Get("n", "x"); got != " 42 " {
		t.Errorf("Get(n) = %q", got)
	}
	if got := p.Get("missing", "x"); got != "x" {
		t.Errorf("Get(missing) = %q", got)
	}
}

func TestErrorFamily(t *testing.T) {
	kinds := []error{ErrClosed, ErrTimeout, ErrConnection, ErrState, ErrGracefulExit, ErrRefused}
	for i, k := range kinds {
		if !errors.Is(k, ErrRendezvous) {
			t.Errorf("%v is not an ErrRendezvous", k)
		}
		for j, other := range kinds {
			if (i == j) != errors.Is(k, other) {
				t.Errorf("errors.Is(%v, %v) = %v", k, other, i != j)
			}
		}
	}
}
