package status

import "testing"

func TestStoreText(t *testing.T) {
	for want, s := range map[string]Store{
		"store: kept by a:1 alone, whose loss would end the job": {Voters: []string{"a:1"}, Leader: "a:1"},
		"store: kept by a:1, from which b:2 takes over if its agent is killed; if its node is lost, the job waits for it": {
			Voters: []string{"a:1"}, Leader: "a:1", Heirs: []string{"b:2"},
		},
		"store: kept by a:1 alone, whose loss would end the job: it cannot reach b:2": {
			Voters: []string{"a:1"}, Leader: "a:1", Problem: "it cannot\nreach b:2",
		},
		"store: kept by a:1, b:2, c:3, led by b:2: the loss of b:2 may end the job: a:1 and c:3 do not reach each other (why)": {
			Voters: []string{"a:1", "b:2", "c:3"}, Leader: "b:2", Problem: "a:1 and c:3 do not reach each other\n(why)",
		},
		"store: kept by a:1, b:2, c:3, led by b:2: any one node may be lost": {
			Voters: []string{"a:1", "b:2", "c:3"}, Leader: "b:2", SurvivesLoss: true,
		},
		"store: kept by a:1, b:2, c:3, led by b:2: one of them is lost or new, and the loss of another one may end the job": {
			Voters: []string{"a:1", "b:2", "c:3"}, Leader: "b:2",
		},
	} {
		if got := s.text(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
