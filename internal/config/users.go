package config

import (
	"errors"
	"fmt"
	"math"
	"os/user"
	"slices"
	"strconv"
	"strings"
)

// StoreUsers are users besides this one and root. The zero value names nobody.
type StoreUsers struct {
	Anybody bool
	IDs     []int // sorted
}

// anyUser names every user.
const anyUser = "any"

// storeUsersFlag is the table's entry for --store-users.
func storeUsersFlag() Flag {
	return Flag{
		Name: "store-users", Kind: KindSpec, Placeholder: "USER,...|any", Group: groupRendezvous, parse: as(parseUsers),
		Values: []string{anyUser},
		Help: "Further users, by name or number, whose processes may use a store that only this machine can reach: the " +
			"workers' store on one node, and stores at a loopback address. any serves every user. Default: only yours " +
			"and root's processes (on Linux).",
	}
}

// parseUsers reads --store-users.
func parseUsers(s string) (StoreUsers, error) { return parseUsersOf(s, user.Lookup) }

// parseUsersOf reads any, or a list of users by number or by name; empty is nobody. lookup is [user.Lookup].
func parseUsersOf(s string, lookup func(string) (*user.User, error)) (StoreUsers, error) {
	if s = strings.TrimSpace(s); s == "" {
		return StoreUsers{}, nil
	}
	var users StoreUsers
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			return StoreUsers{}, errors.New("must be a list of users, such as alice,1001, or any")
		case name == anyUser:
			users.Anybody = true
			continue
		case isDigits(name):
		default:
			found, err := lookup(name)
			if err != nil {
				return StoreUsers{}, fmt.Errorf("this machine knows no user %q: give the number of the user (id -u %s)", name, name)
			}
			name = found.Uid
		}
		id, err := strconv.ParseUint(name, 10, 32)
		if err != nil || id == math.MaxUint32 { // the last number means no user
			return StoreUsers{}, fmt.Errorf("%s is not the number of a user", name)
		}
		users.IDs = append(users.IDs, int(id))
	}
	slices.Sort(users.IDs)
	users.IDs = slices.Compact(users.IDs)
	if users.Anybody && len(users.IDs) > 0 {
		return StoreUsers{}, errors.New("any already means every user: leave the others out")
	}
	return users, nil
}
