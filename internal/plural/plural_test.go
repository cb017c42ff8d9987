package plural

import "testing"

func TestOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		n    int
		noun string
		want string
	}{
		{0, "restart", "0 restarts"},
		{1, "node", "1 node"},
		{2, "node", "2 nodes"},
		{1, "process", "1 process"},
		{3, "idle process", "3 idle processes"},
		{2, "batch", "2 batches"},
		{2, "box", "2 boxes"},
		{2, "entry", "2 entries"},
		{2, "key", "2 keys"},
		{2, "y", "2 ies"}, // no noun, and no panic
		{-1, "node", "-1 nodes"},
	} {
		if got := Of(tt.n, tt.noun); got != tt.want {
			t.Errorf("Of(%d, %q) = %q, want %q", tt.n, tt.noun, got, tt.want)
		}
	}
}
