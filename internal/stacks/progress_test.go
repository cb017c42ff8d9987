package stacks

import "testing"

func TestProgress(t *testing.T) {
	for _, tt := range []struct {
		name    string
		done    []int
		running []Worker
		silent  []string
		want    string
	}{
		{
			name: "one is late", done: []int{0, 1, 2, 3, 4, 5, 6}, running: []Worker{at(7, "save")},
			want: "ranks 0-6 done; rank 7 is in save, train.py:7",
		},
		{
			name: "the small group comes first", done: []int{5}, running: []Worker{at(0, "wait"), at(4, "load"), at(1, "wait")},
			want: "rank 5 done; rank 4 is in load, train.py:7; ranks 0-1 are in wait, train.py:7",
		},
		{
			name:    "many places",
			running: []Worker{at(4, "a"), at(3, "b"), at(2, "c"), at(1, "d"), at(0, "e")},
			want: "rank 0 is in e, train.py:7; rank 1 is in d, train.py:7; rank 2 is in c, train.py:7; " +
				"ranks 3-4 elsewhere",
		},
		{name: "a host is silent", silent: []string{"node2", "node3"}, want: "no reply from node2, node3"},
		{name: "nothing is known of it", running: []Worker{{Rank: 1}}, want: "rank 1 is running"},
		{name: "all are done", done: []int{0, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Progress(tt.done, tt.running, tt.silent); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
