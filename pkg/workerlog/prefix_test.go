package workerlog

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
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
	vars := PrefixVars{Role: "trainer", LocalRank: 2, Rank: 10, NodeRank: 1, Hostname: "node1"}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_700_000, time.UTC)
	for _, tt := range []struct{ template, want string }{
		{"", "[trainer2]:"},
		{"${role_name}/${local_rank}/$rank: ", "trainer/2/10: "},
		{"$hostname $unknown $$ ${node_rank}", "node1 $unknown $ 1"},
		{"${time} x", "03:04:05.006 x"},
		{"[$time$$time $${time}]", "[03:04:05.006$time ${time}]"},
		{"$time$time", "03:04:05.00603:04:05.006"},
	} {
		if got := LinePrefix(tt.template, vars).At(at); got != tt.want {
			t.Errorf("LinePrefix(%q) = %q, want %q", tt.template, got, tt.want)
		}
	}
}

// The time in a prefix is that at which the line is written, not that at which its stream was opened.
func TestLinePrefixTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l := &lineSplitter{prefix: newStampedPrefix(LinePrefix("$time|$rank|", PrefixVars{Rank: 3}))}
		<-time.After(1500 * time.Millisecond)
		b, _ := l.feed([]byte("a\nb\nc"))
		at := start.Add(1500 * time.Millisecond).Format(timeOfDay)
		if got, want := string(b.buf), "\n"+at+"|3|a\n"+at+"|3|b\n"; got != want || b.prefix != len(at+"|3|") {
			t.Errorf("got %q with a prefix of %d bytes, want %q", got, b.prefix, want)
		}
		<-time.After(time.Hour)
		if got, want := string(l.flush().buf), "\n"+start.Add(time.Hour+1500*time.Millisecond).Format(timeOfDay)+"|3|c"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
