package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommand(t *testing.T) {
	tests := []struct {
		name    string
		cfg     Config
		program string
		args    []string
	}{
		{"script", Config{Script: "train.py", ScriptArgs: []string{"--lr", "0.1"}}, "/py", []string{"-u", "train.py", "--lr", "0.1"}},
		{"module", Config{Script: "pkg.train", Module: true}, "/py", []string{"-u", "-m", "pkg.train"}},
		{"program", Config{Script: "./run", NoPython: true, ScriptArgs: []string{"", "$local_rank"}}, "./run", []string{"", "$local_rank"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			program, args := tt.cfg.Command("/py")
			if diff := cmp.Diff(tt.args, args); program != tt.program || diff != "" {
				t.Errorf("program %q, args (-want +got):\n%s", program, diff)
			}
		})
	}
}
