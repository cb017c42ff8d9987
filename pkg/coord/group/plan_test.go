package group

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

func TestPlan(t *testing.T) {
	usable := func(ids ...replica.ID) (members []member) {
		for _, id := range ids {
			members = append(members, member{id: id, current: true})
		}
		return members
	}
	silent := func(id replica.ID) member { return member{id: id, current: true, silent: true} }
	apart := func(id replica.ID) member { return member{id: id, current: true, apart: true} }
	leaving := func(id replica.ID) member { return member{id: id, current: true, leaving: true} }
	type ids = []replica.ID
	for name, c := range map[string]struct {
		view view
		want step
	}{
		"alone": {
			view{self: 1, want: 3, voters: usable(1)}, step{},
		},
		"a candidate": {
			view{self: 1, want: 3, voters: usable(1), candidates: []string{"a", "b"}}, step{add: "a"},
		},
		"one voter is enough": {
			view{self: 1, want: 1, voters: usable(1), candidates: []string{"a"}}, step{},
		},
		"never two voters": {
			view{self: 1, want: 3, voters: usable(1), learners: usable(2)}, step{},
		},
		"three": {
			view{self: 1, want: 3, voters: usable(1), learners: usable(2, 3)}, step{voters: ids{1, 2, 3}},
		},
		"a learner is not current": {
			view{self: 1, want: 3, voters: usable(1), learners: append(usable(2), member{id: 3})}, step{},
		},
		"three of five": {
			view{self: 1, want: 5, voters: usable(1), learners: usable(2, 3, 4)}, step{voters: ids{1, 2, 3}, learners: ids{4}},
		},
		"a lost voter, a candidate": {
			view{self: 1, want: 3, voters: append(usable(1, 2), silent(3)), candidates: []string{"a"}}, step{add: "a"},
		},
		"a lost voter, a learner": {
			view{self: 1, want: 3, voters: append(usable(1, 2), silent(3)), learners: usable(4)}, step{voters: ids{1, 2, 4}},
		},
		"a lost voter, nobody else": {
			view{self: 2, want: 3, voters: append(usable(1, 2), silent(3))}, step{voters: ids{2}, learners: ids{1}},
		},
		"a lost voter, nobody else, and the first one does not lead": {
			view{self: 2, want: 3, voters: append(usable(1, 2), silent(3)), first: 1}, step{voters: ids{1}, learners: ids{2}},
		},
		"the first one has come back": {
			view{self: 2, want: 3, voters: usable(2), learners: usable(4), first: 4}, step{voters: ids{4}, learners: ids{2}},
		},
		"the first one has come back, and more may come": {
			view{self: 2, want: 3, voters: usable(2), learners: usable(4), first: 4, candidates: []string{"a"}}, step{add: "a"},
		},
		"the first one is silent": {
			view{self: 2, want: 3, voters: usable(2), learners: []member{silent(4)}, first: 4}, step{voters: ids{2}},
		},
		"the first one leaves": {
			view{self: 2, want: 3, voters: usable(2), learners: []member{leaving(4)}, first: 4}, step{voters: ids{2}},
		},
		"three, and the first one does not vote": {
			view{self: 2, want: 3, voters: usable(2, 3, 5), first: 4}, step{},
		},
		"the leader leaves": {
			view{self: 1, want: 3, voters: append(usable(2, 3), leaving(1))}, step{transfer: 2},
		},
		"the only voter leaves": {
			view{self: 1, want: 3, voters: []member{leaving(1)}, learners: usable(2)}, step{voters: ids{2}},
		},
		"the last member leaves": {
			view{self: 1, want: 3, voters: []member{leaving(1)}}, step{},
		},
		"all leave": {
			view{self: 1, want: 3, voters: []member{leaving(1), leaving(2), leaving(3)}}, step{voters: ids{1}},
		},
		"all leave, a candidate": {
			view{self: 1, want: 3, voters: []member{leaving(1), leaving(2), leaving(3)}, candidates: []string{"a"}},
			step{add: "a"},
		},
		"a voter does not reach another one, a candidate": {
			view{self: 1, want: 3, voters: append(usable(1, 2), apart(3)), candidates: []string{"a"}}, step{add: "a"},
		},
		"a voter does not reach another one, a learner is not current": {
			view{self: 1, want: 3, voters: append(usable(1, 2), apart(3)), learners: []member{{id: 4}}}, step{},
		},
		"a voter does not reach another one, a learner": {
			view{self: 1, want: 3, voters: append(usable(1, 2), apart(3)), learners: usable(4)}, step{voters: ids{1, 2, 4}},
		},
		"a voter does not reach another one of five, a candidate": {
			view{self: 1, want: 5, voters: append(usable(1, 2, 3, 4), apart(5)), candidates: []string{"a"}}, step{add: "a"},
		},
		"a voter leaves, a candidate": {
			view{self: 1, want: 3, voters: append(usable(1, 2), leaving(3)), candidates: []string{"a"}}, step{add: "a"},
		},
		"a voter leaves late, a candidate": {
			view{self: 1, want: 3, voters: append(usable(1, 2), leaving(3)), candidates: []string{"a"}, late: true},
			step{voters: ids{1}, learners: ids{2}},
		},
	} {
		if diff := cmp.Diff(c.want, plan(c.view), cmp.AllowUnexported(step{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// world is a group that the steps of plan change. One member leads at a time.
type world struct {
	view
	highest replica.ID
}

// apply checks a step and carries it out.
func (w *world) apply(s step) error {
	switch {
	case s.add != "":
		w.highest++
		w.learners = append(w.learners, member{id: w.highest})
		w.candidates = slices.DeleteFunc(w.candidates, func(c string) bool { return c == s.add })
	case len(s.voters) > 0:
		return w.change(s)
	case s.transfer != 0:
		if !slices.ContainsFunc(w.voters, func(m member) bool { return m.id == s.transfer && m.usable() }) {
			return fmt.Errorf("%d cannot lead", s.transfer)
		}
		w.self = s.transfer
	}
	return nil
}

func (w *world) change(s step) error {
	members := slices.Concat(w.voters, w.learners)
	leaves := false
	pick := func(ids []replica.ID) (picked []member) {
		for _, m := range members {
			if slices.Contains(ids, m.id) {
				picked = append(picked, m)
			}
			leaves = leaves || m.id == w.self && m.leaving
		}
		return picked
	}
	voters := pick(s.voters)
	alive := 0
	for _, m := range voters {
		if !m.current {
			return fmt.Errorf("%d becomes a voter and is not current", m.id)
		}
		if !m.silent {
			alive++
		}
	}
	switch {
	case len(voters) != len(s.voters) || len(pick(s.learners)) != len(s.learners):
		return fmt.Errorf("some of %v and %v are no members", s.voters, s.learners)
	case len(voters)%2 == 0:
		return fmt.Errorf("%d voters", len(voters))
	case alive <= len(voters)/2:
		return fmt.Errorf("of the new voters %v only %d can agree", s.voters, alive)
	case !slices.Contains(s.voters, w.self) && !leaves && !slices.Equal(s.voters, []replica.ID{w.first}):
		return fmt.Errorf("the leader %d is removed", w.self)
	}
	w.voters, w.learners = voters, pick(s.learners)
	if !slices.Contains(s.voters, w.self) {
		w.self = s.voters[0]
	}
	return nil
}

// happen changes the world at random, but never so that a majority of the voters is lost.
func (w *world) happen(random *rand.Rand) {
	pick := func(members []member) *member {
		if len(members) == 0 {
			return &member{}
		}
		return &members[random.IntN(len(members))]
	}
	silent := 0
	for _, m := range w.voters {
		if m.silent {
			silent++
		}
	}
	switch random.IntN(8) {
	case 0:
		if m := pick(w.voters); m.id != w.self && silent+1 <= (len(w.voters)-1)/2 {
			m.silent = true
		}
	case 1:
		pick(w.learners).silent = true
	case 2:
		pick(w.voters).leaving = true
	case 3:
		pick(w.learners).leaving = true
	case 4, 5:
		pick(w.learners).current = true
	case 6:
		w.candidates = append(w.candidates, fmt.Sprint(random.Int()))
	case 7:
		w.late = !w.late
	}
}

// TestPlanInRandomWorlds checks the steps of plan in worlds that change. In each world plan must stop with as many
// voters as possible.
func TestPlanInRandomWorlds(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 0))
		w := &world{view: view{self: 1, want: 2*random.IntN(3) + 1, voters: []member{{id: 1, current: true}}}, highest: 1}
		for i := range 60 {
			w.first = replica.ID(random.IntN(8))
			w.happen(random)
			if err := w.apply(plan(w.view)); err != nil {
				t.Fatalf("seed %d, step %d: %v in %+v", seed, i, err, w.view)
			}
		}
		for steps := 0; ; steps++ {
			for i := range w.learners { // every process that was asked joins
				w.learners[i].current = true
			}
			next := plan(w.view)
			if cmp.Equal(next, step{}, cmp.AllowUnexported(step{}), cmpopts.EquateEmpty()) {
				break
			}
			if steps > 100 {
				t.Fatalf("seed %d: no rest, %+v in %+v", seed, next, w.view)
			}
			if err := w.apply(next); err != nil {
				t.Fatalf("seed %d: %v in %+v", seed, err, w.view)
			}
		}
		usable := 0
		for _, m := range slices.Concat(w.voters, w.learners) {
			if m.usable() {
				usable++
			}
		}
		if want := odd(min(w.want, usable)); len(w.voters) != want && usable > 0 {
			t.Fatalf("seed %d: %d voters, want %d: %+v", seed, len(w.voters), want, w.view)
		}
	}
}
