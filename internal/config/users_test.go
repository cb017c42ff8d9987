package config

import (
	"os/user"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseUsers(t *testing.T) {
	lookup := func(name string) (*user.User, error) {
		if name == "alice" {
			return &user.User{Uid: "1001"}, nil
		}
		return nil, user.UnknownUserError(name)
	}
	for _, tt := range []struct {
		in   string
		want StoreUsers
		err  string
	}{
		{in: ""},
		{in: "any", want: StoreUsers{Anybody: true}},
		{in: "1002, alice,1001", want: StoreUsers{IDs: []int{1001, 1002}}},
		{in: "0", want: StoreUsers{IDs: []int{0}}},
		{in: "alice,", err: "must be a list of users, such as alice,1001, or any"},
		{in: "bob", err: `this machine knows no user "bob": give the number of the user (id -u bob)`},
		{in: "-1", err: `this machine knows no user "-1": give the number of the user (id -u -1)`},
		{in: "4294967295", err: "4294967295 is not the number of a user"},
		{in: "99999999999", err: "99999999999 is not the number of a user"},
		{in: "any,alice", err: "any already means every user: leave the others out"},
	} {
		got, err := parseUsersOf(tt.in, lookup)
		message := ""
		if err != nil {
			message = err.Error()
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || message != tt.err {
			t.Errorf("%q: %v, want %s\n%s", tt.in, err, tt.err, diff)
		}
	}
}
