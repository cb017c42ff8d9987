package membership

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/elasticrun/elasticrun/pkg/kvstore"
	"github.com/elasticrun/elasticrun/pkg/rpc/device"
)

// maxName is the most bytes of a worker's name.
const maxName = 127

// CheckName returns a [*NameError] unless name is one of 1 to 127 ASCII letters, digits, '-', '_', ':' and '.'.
func CheckName(name string) error {
	good := name != "" && len(name) <= maxName
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == ':', c == '.':
		default:
			good = false
		}
	}
	if !good {
		return &NameError{Name: name}
	}
	return nil
}

// checkStatic checks what the record of a static group's member says, as far as that can be seen without the others.
func (r Record) checkStatic() error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	if r.WorldSize < 1 {
		return &WorldSizeError{Worker: r.Name, WorldSize: r.WorldSize}
	}
	if r.ID < 0 || r.ID >= r.WorldSize {
		return &RankError{Worker: r.Name, Rank: r.ID, WorldSize: r.WorldSize}
	}
	return r.checkAddress()
}

func (r Record) checkAddress() error {
	host, port, err := net.SplitHostPort(r.Address)
	number, portErr := strconv.ParseUint(port, 10, 16)
	ip, ipErr := netip.ParseAddr(host)
	if err != nil || portErr != nil || number == 0 || host == "" || ipErr == nil && ip.IsUnspecified() {
		return &AddressError{Worker: r.Name, Host: r.Host, Address: r.Address}
	}
	return nil
}

// loopback tells whether only workers of the same host reach the member.
func (r Record) loopback() bool {
	host, _, err := net.SplitHostPort(r.Address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// checkMembers checks what the members of a group say against each other. It is a pure function of their records, so that all who
// see the same members find the same error.
func checkMembers(members []Record, static bool) error {
	if err := checkLoopback(members); err != nil {
		return err
	}
	return device.Validate(DeviceWorkers(members), static)
}

// checkLoopback refuses a member that those on other hosts cannot reach.
func checkLoopback(members []Record) error {
	foreign := slices.IndexFunc(members, func(m Record) bool { return m.Host != members[0].Host })
	if foreign < 0 {
		return nil
	}
	for _, m := range members {
		if !m.loopback() {
			continue
		}
		other := members[0]
		if other.Host == m.Host {
			other = members[foreign]
		}
		return &AddressError{Worker: m.Name, Host: m.Host, Address: m.Address, Other: other.Name, OtherHost: other.Host}
	}
	return nil
}

// DeviceWorkers returns members as [device.Validate] and [device.Reverse] want them.
func DeviceWorkers(members []Record) []device.Worker {
	workers := make([]device.Worker, len(members))
	for i, m := range members {
		workers[i] = device.Worker{Name: m.Name, Count: m.DeviceCount, Maps: m.DeviceMaps, Devices: m.Devices}
	}
	return workers
}

// encode returns the record as the store holds it. That which cannot be read again is refused here, before others see it.
func (r Record) encode() ([]byte, error) {
	data, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(data, new(Record))
	}
	if err != nil {
		return nil, fmt.Errorf("worker %q: its record cannot be written: %w", r.Name, err)
	}
	return data, nil
}

// decodeRecord reads what the member wrote whose key this is.
func decodeRecord(key string, data []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("store key %q holds no worker's record: %w", key, err)
	}
	return r, nil
}

// termsKey holds what all members must have in common.
const termsKey = "terms"

// terms are set once, by the member that comes first.
type terms struct {
	Version     int    `json:"version"`
	WorldSize   int    `json:"world_size"`
	Secure      bool   `json:"secure"`
	By          string `json:"by"`
	Incarnation uint64 `json:"incarnation,string"`
}

// Agree makes version, world size and TLS of the first member of a group those of all: a worker with others gets a [*VersionError],
// [*WorldSizeError] or [*SecurityError], and the group does not notice it. Where it is the first that is wrong, all the
// others are refused, and the error names it. A dynamic group has world size 0.
func Agree(ctx context.Context, store kvstore.Store, self Record) error {
	own := terms{self.Version, self.WorldSize, self.Secure, self.Name, self.Incarnation}
	data, err := json.Marshal(own)
	if err != nil {
		return fmt.Errorf("worker %q: terms of its group: %w", self.Name, err)
	}
	got, err := store.CompareSet(ctx, termsKey, nil, data)
	if err != nil {
		return fmt.Errorf("worker %q: agree with its group: %w", self.Name, err)
	}
	if bytes.Equal(got, data) {
		return nil
	}
	var first terms
	if err := json.Unmarshal(got, &first); err != nil {
		return fmt.Errorf("worker %q: store key %q holds no terms of a group: %w", self.Name, termsKey, err)
	}
	return first.refuse(own)
}

// refuse returns why a member with the terms own does not belong to the group, or nil.
func (t terms) refuse(own terms) error {
	switch {
	case t.Version != own.Version:
		return &VersionError{Worker: own.By, Version: own.Version, By: t.By, Want: t.Version}
	case t.WorldSize != own.WorldSize:
		return &WorldSizeError{Worker: own.By, WorldSize: own.WorldSize, By: t.By, Want: t.WorldSize}
	case t.Secure != own.Secure:
		return &SecurityError{Worker: own.By, Secure: own.Secure, By: t.By}
	}
	return nil
}
