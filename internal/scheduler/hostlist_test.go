package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestExpand(t *testing.T) {
	tests := []struct{ list, want string }{
		{"n1", "n1"},
		{"n1,n2", "n1 n2"},
		{"gpu[001-003,7],login1", "gpu001 gpu002 gpu003 gpu7 login1"},
		{"r[1-2]n[01-03]", "r1n01 r1n02 r1n03 r2n01 r2n02 r2n03"},
		{"n[8-11]", "n8 n9 n10 n11"},
		{"n[08-11]", "n08 n09 n10 n11"},
		{"n[099-101]", "n099 n100 n101"},
		{"n[0-1]-ib.cluster,x", "n0-ib.cluster n1-ib.cluster x"},
		{"[1-2]", "1 2"},
		{"n[3,1,2]", "n3 n1 n2"},
		{"n[2-2]", "n2"},
		{"n3,n[1-2]", "n3 n1 n2"},
		{"a[1][2]", "a12"},
	}
	for _, tt := range tests {
		got, err := Expand(tt.list)
		if err != nil {
			t.Errorf("%s: %v", tt.list, err)
		}
		if diff := cmp.Diff(strings.Fields(tt.want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.list, diff)
		}
	}
}

// TestExpandMost checks that the largest list is accepted.
func TestExpandMost(t *testing.T) {
	hosts, err := Expand("n[0-1048575]")
	if err != nil || len(hosts) != 1<<20 || hosts[1<<20-1] != "n1048575" {
		t.Errorf("%d hosts, %v", len(hosts), err)
	}
}

func TestExpandRefuses(t *testing.T) {
	tests := []struct {
		list string
		at   int
		want string
	}{
		{"", 1, "a host name is missing"},
		{"a,,b", 3, "a host name is missing"},
		{"a,", 3, "a host name is missing"},
		{"n[1-3", 2, "[ is not closed"},
		{"n[1-", 2, "[ is not closed"},
		{"n[1,", 2, "[ is not closed"},
		{"n[", 2, "[ is not closed"},
		{"n[]", 3, "a number is missing"},
		{"n[1,]", 5, "a number is missing"},
		{"n[-3]", 3, "a number is missing"},
		{"n[a-b]", 3, "a number is missing"},
		{"n[1[2]]", 4, "[ within brackets"},
		{"n[[1]]", 3, "[ within brackets"},
		{"n[1;2]", 4, "';' cannot be in brackets"},
		{"n[1-2-3]", 6, "'-' cannot be in brackets"},
		{"n1]", 3, "] without ["},
		{"n[3-1]", 4, "the range 3-1 is reversed"},
		{"n1 n2", 3, "' ' cannot be in a host name"},
		{"n[0-1048576]", 4, "more than 1048576 hosts"},
		{"a[0-1023]b[0-1024]", 11, "more than 1048576 hosts"},
		{"a,n[0-1048575]", 4, "more than 1048576 hosts"},
		{"n[1-99999999999999999999]", 5, "a number is too large"},
		{"n[9223372036854775807-9223372036854775808]", 3, "a number is too large"},
		{strings.Repeat("n", 256), 1, "a host name is too long"},
		{strings.Repeat("n", 255) + "[1]", 256, "a host name is too long"},
	}
	for _, tt := range tests {
		want := fmt.Sprintf("host list %q, character %d: %s", tt.list, tt.at, tt.want)
		if got, err := Expand(tt.list); err == nil || err.Error() != want {
			t.Errorf("got %d hosts and the error\n%v, want\n%s", len(got), err, want)
		}
	}
}

// FuzzExpand checks that the expansion of a list is bounded, and that a list of its hosts expands to the same hosts.
func FuzzExpand(f *testing.F) {
	for _, list := range []string{"n1", "gpu[001-003,7],login1", "r[1-2]n[01-04]-x", "n[1-", "n[3-1]", "a,,b", "n[0-4095]", "[][", "é[1-2]"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := Expand(list)
		if err != nil {
			if !strings.HasPrefix(err.Error(), fmt.Sprintf("host list %q, character ", list)) {
				t.Errorf("%q: the error does not name the list: %v", list, err)
			}
			return
		}
		if len(hosts) == 0 || len(hosts) > 1<<20 {
			t.Fatalf("%q stands for %d hosts", list, len(hosts))
		}
		again, err := Expand(strings.Join(hosts, ","))
		if err != nil {
			t.Fatalf("%q: its hosts are no list: %v", list, err)
		}
		if !slices.Equal(hosts, again) {
			t.Errorf("%q: its hosts, as a list, are others", list)
		}
	})
}
