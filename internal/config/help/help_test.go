package help

import (
	"strings"
	"testing"

	"github.com/elasticrun/elasticrun/internal/config"
)

func TestHelp(t *testing.T) {
	type text struct {
		help  string
		flags []config.Flag
	}
	all := []text{{Launch(), config.Flags()}}
	for _, s := range config.Subcommands() {
		if !strings.Contains(Launch(), "\n  elasticrun "+s.Name+" ") {
			t.Errorf("elasticrun --help does not list the command %s", s.Name)
		}
		all = append(all, text{Command(s), s.Flags()})
	}
	for _, tt := range all {
		for line := range strings.Lines(tt.help) {
			line = strings.TrimSuffix(line, "\n")
			if len(line) > maxWidth || strings.TrimRight(line, " ") != line {
				t.Errorf("%d columns or a blank at the end: %q", len(line), line)
			}
		}
		for _, f := range tt.flags {
			if strings.Count(tt.help, "--"+f.Name+"\n")+strings.Count(tt.help, "--"+f.Name+" ") == 0 {
				t.Errorf("--%s is not in the help", f.Name)
			}
		}
	}
}
