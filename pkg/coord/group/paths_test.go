package group

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

// noPath is a reason in tests.
const noPath = "no route"

// missing returns a leader's record after each of these voters has reported, at two moments, which other voters it
// reaches. In each pair the first voter does not reach the second.
func missing(voters []replica.ID, first, second int, pairs ...[2]replica.ID) *paths {
	p := &paths{}
	p.begin(first, voters)
	for _, now := range []int{first, second} {
		for _, a := range voters {
			for _, b := range without(voters, []replica.ID{a}) {
				reason := ""
				for _, pair := range pairs {
					if pair == [2]replica.ID{a, b} {
						reason = noPath
					}
				}
				p.note(now, a, b, reason)
			}
		}
	}
	return p
}

func TestPathsBetweenVoters(t *testing.T) {
	type pair = [2]replica.ID
	voters := []replica.ID{2, 3}
	addrOf := func(id replica.ID) string { return map[replica.ID]string{2: "b:1", 3: "c:1"}[id] }
	unanswered := &paths{}
	unanswered.begin(0, voters)
	half := &paths{}
	half.begin(0, voters)
	half.note(0, 2, 3, "")
	for name, c := range map[string]struct {
		paths    *paths
		complete bool
		apart    string
	}{
		"no answer yet":           {paths: unanswered},
		"one answer":              {paths: half},
		"both reach each other":   {paths: missing(voters, 0, 30), complete: true},
		"missed for a moment":     {paths: missing(voters, 0, silentTicks-1, pair{2, 3}, pair{3, 2})},
		"missed for some time":    {paths: missing(voters, 0, 30, pair{2, 3}, pair{3, 2}), apart: "b:1 and c:1 do not reach each other (no route)"},
		"missed in one way":       {paths: missing(voters, 0, 30, pair{2, 3}), apart: "b:1 does not reach c:1 (no route)"},
		"missed in the other":     {paths: missing(voters, 0, 30, pair{3, 2}), apart: "c:1 does not reach b:1 (no route)"},
		"they are voters no more": {paths: missing([]replica.ID{4, 5}, 0, 30, pair{4, 5})},
	} {
		if got := c.paths.complete(voters); got != c.complete {
			t.Errorf("%s: complete is %v", name, got)
		}
		apart := ""
		for _, pair := range c.paths.pairs(voters) {
			apart += c.paths.describe(pair[0], pair[1], addrOf)
		}
		if apart != c.apart {
			t.Errorf("%s: %q, want %q", name, apart, c.apart)
		}
	}
	healed := missing(voters, 0, 30, pair{2, 3})
	healed.note(60, 2, 3, "")
	healed.note(90, 2, 3, noPath)
	if pairs := healed.pairs(voters); len(pairs) > 0 {
		t.Errorf("a path that there was in between counts as missing for long: %v", pairs)
	}
}

func TestPathsAreDue(t *testing.T) {
	voters := []replica.ID{2, 3}
	known := missing(voters, 0, 0)
	lacking := missing(voters, 0, 0, [2]replica.ID{2, 3})
	for name, c := range map[string]struct {
		paths  *paths
		now    int
		voters []replica.ID
		want   bool
	}{
		"nothing was asked":        {&paths{}, 0, voters, true},
		"all is known":             {known, retryTicks, voters, false},
		"all was known":            {known, recheckTicks, voters, true},
		"a path is missing, early": {lacking, retryTicks - 1, voters, false},
		"a path is missing":        {lacking, retryTicks, voters, true},
		"another voter":            {known, 1, []replica.ID{2, 4}, true},
	} {
		if got := c.paths.due(c.now, c.voters); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	lacking.begin(retryTicks, []replica.ID{3, 4})
	if diff := cmp.Diff(map[[2]replica.ID]route{}, lacking.found, cmp.AllowUnexported(route{})); diff != "" {
		t.Errorf("what is known of former voters (-want +got):\n%s", diff)
	}
}

func TestOutcast(t *testing.T) {
	type pair = [2]replica.ID
	b, c, d, e := located{2, "b:1"}, located{3, "c:1"}, located{4, "d:1"}, located{5, "e:1"}
	for name, tt := range map[string]struct {
		voters []located
		pairs  []pair
		former [][2]string // addresses that were found apart before
		others []string
		first  replica.ID
		want   replica.ID
	}{
		"all reach each other":     {voters: []located{b, c}, others: []string{"x:1"}},
		"the later one":            {voters: []located{b, c}, pairs: []pair{{2, 3}}, others: []string{"x:1"}, want: 3},
		"one way is missing":       {voters: []located{b, c}, pairs: []pair{{3, 2}}, others: []string{"x:1"}, want: 3},
		"not the first endpoint":   {voters: []located{b, c}, pairs: []pair{{2, 3}}, others: []string{"x:1"}, first: 3, want: 2},
		"the first endpoint stays": {voters: []located{b, c}, pairs: []pair{{2, 3}}, others: []string{"x:1"}, first: 2, want: 3},
		"nobody else":              {voters: []located{b, c}, pairs: []pair{{2, 3}}},
		"the one that most miss":   {voters: []located{b, c, d, e}, pairs: []pair{{2, 3}, {2, 4}}, others: []string{"x:1"}, want: 2},
		"even at the first":        {voters: []located{b, c, d, e}, pairs: []pair{{2, 3}, {2, 4}}, others: []string{"x:1"}, first: 2, want: 2},
		"the other one fits better": {
			voters: []located{b, c}, pairs: []pair{{2, 3}}, former: [][2]string{{"b:1", "x:1"}}, others: []string{"x:1"}, want: 2,
		},
		"one of two fits": {
			voters: []located{b, c}, pairs: []pair{{2, 3}}, former: [][2]string{{"x:1", "b:1"}}, others: []string{"x:1", "y:1"},
			want: 2,
		},
		"nobody fits": {
			voters: []located{b, c}, pairs: []pair{{2, 3}}, former: [][2]string{{"x:1", "b:1"}, {"c:1", "x:1"}},
			others: []string{"x:1"},
		},
	} {
		var ids []replica.ID
		addrs := map[replica.ID]string{}
		for _, v := range tt.voters {
			ids = append(ids, v.id)
			addrs[v.id] = v.addr
		}
		p := missing(ids, 0, 30, tt.pairs...)
		p.remember(30, ids, func(id replica.ID) string { return addrs[id] })
		for _, ends := range tt.former {
			p.apart[endsOf(ends[0], ends[1])] = 0
		}
		if got := p.outcast(30, tt.voters, tt.others, tt.first); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
		if got := p.outcast(30+apartTicks, tt.voters, tt.others, tt.first); len(tt.former) > 0 && got != 3 {
			t.Errorf("%s: later %d, want 3", name, got)
		}
	}
	healed := missing([]replica.ID{2, 3}, 0, 30, pair{2, 3})
	addrOf := func(id replica.ID) string { return map[replica.ID]string{2: "b:1", 3: "c:1"}[id] }
	healed.remember(30, []replica.ID{2, 3}, addrOf)
	before := healed.wereApart(30, "c:1", "b:1")
	healed.note(60, 2, 3, "")
	healed.remember(60, []replica.ID{2, 3}, addrOf)
	if after := healed.wereApart(60, "c:1", "b:1"); !before || after {
		t.Errorf("apart: %v, and %v when they reach each other", before, after)
	}
}
