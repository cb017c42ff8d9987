package procs

import (
	"strings"
	"testing"
)

func TestSubstitute(t *testing.T) {
	vars := map[string]string{"local_rank": "3", "_x1": "u", "A": "$local_rank"}
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"plain", "plain"},
		{"$local_rank", "3"},
		{"${local_rank}", "3"},
		{"--dev=cuda:$local_rank,", "--dev=cuda:3,"},
		{"a${local_rank}b$local_rank-c", "a3b3-c"},
		{"$$", "$"},
		{"$$local_rank", "$local_rank"},
		{"$$$local_rank", "$3"},
		{"$${local_rank}", "${local_rank}"},
		{"$", "$"},
		{"cost $5", "cost $5"},
		{"$HOME/$local_ranks", "$HOME/$local_ranks"},
		{"${unknown} ${", "${unknown} ${"},
		{"${local_rank", "${local_rank"},
		{"${}", "${}"},
		{"${ local_rank}", "${ local_rank}"},
		{"${local_rank }", "${local_rank }"},
		{"$_x1$_", "u$_"},
		{"$local_rankö", "3ö"},
		{"$A", "$local_rank"}, // values are not substituted again
		{"$a", "$a"},          // names are case-sensitive
		{"${$local_rank}", "${3}"},
		{"$\xff$local_rank", "$\xff3"},
	} {
		if got := Substitute(tt.in, vars); got != tt.want {
			t.Errorf("Substitute(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func FuzzSubstitute(f *testing.F) {
	for _, s := range []string{"$local_rank", "${local_rank}", "$$", "$${x}", "${", "a$b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := Substitute(strings.ReplaceAll(s, "$", "$$"), nil), s; got != want {
			t.Errorf("%q escaped came back as %q", want, got)
		}
		if got := Substitute(s, nil); !strings.Contains(s, "$$") && got != s {
			t.Errorf("Substitute(%q) without variables = %q", s, got)
		}
	})
}

func TestLinePrefix(t *testing.T) {
	vars := PrefixVars{Role: "trainer", LocalRank: 2, Rank: 10, Hostname: "node1"}
	for _, tt := range []struct{ template, want string }{
		{"", "[trainer2]:"},
		{"${role_name}/${local_rank}/$rank: ", "trainer/2/10: "},
		{"$hostname $unknown $$", "node1 $unknown $"},
	} {
		if got := LinePrefix(tt.template, vars); got != tt.want {
			t.Errorf("LinePrefix(%q) = %q, want %q", tt.template, got, tt.want)
		}
	}
}
