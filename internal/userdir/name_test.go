package userdir

import (
	"os"
	"testing"
)

func TestName(t *testing.T) {
	own, other := os.Geteuid(), os.Geteuid()+1
	for _, uid := range []int{own, other} {
		if got, ok := Of(Name(uid)); !ok || got != uid {
			t.Errorf("%s is the name of user %d, %v; want user %d", Name(uid), got, ok, uid)
		}
	}
	for _, name := range []string{"", "elasticrun-", "elasticrun-x", "elasticrun--1", "other-1", "elasticrun-01"} {
		if uid, ok := Of(name); ok {
			t.Errorf("%q is the name of user %d", name, uid)
		}
	}
}

func TestOuterID(t *testing.T) {
	const whole = "         0          0 4294967295\n"
	for _, c := range []struct {
		userMap   string
		uid, want int
	}{
		{whole, 0, 0},
		{whole, 1000, 1000},
		{"0 1000 1\n", 0, 1000},
		{"0 1000 1\n", 7, 7}, // no such user in the namespace
		{"0 1000 1\n1 100000 65536\n", 1, 100000},
		{"0 1000 1\n1 100000 65536\n", 1000, 100999},
		{"", 5, 5},
		{"garbage\n0 1000\n0 1000 x\n", 0, 0},
	} {
		if got := outerID(c.uid, c.userMap); got != c.want {
			t.Errorf("user %d of %q is %d outside, want %d", c.uid, c.userMap, got, c.want)
		}
	}
}
