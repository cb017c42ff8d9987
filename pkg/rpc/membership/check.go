package membership

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/elasticrun/elasticrun/pkg/rpc/device"
)

// maxName is the maximum length of a worker's name in bytes.
const maxName = 127

// CheckName returns a [*NameError] unless name consists of 1 to 127 ASCII letters, digits, '-', '_', ':' and '.'.
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

// checkStatic checks the record of a static group's member without looking at other members.
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

// loopback reports whether only workers on the same host can reach the member.
func (r Record) loopback() bool {
	host, _, err := net.SplitHostPort(r.Address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// checkMembers checks the records of a group against each other. It is a pure function of the records, so all workers
// that see the same members get the same error.
func checkMembers(members []Record, static bool) error {
	if err := checkLoopback(members); err != nil {
		return err
	}
	return device.Validate(DeviceWorkers(members), static)
}

// checkLoopback refuses a loopback address if the group has members on other hosts.
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

// DeviceWorkers converts members to the arguments of [device.Validate] and [device.Reverse].
func DeviceWorkers(members []Record) []device.Worker {
	workers := make([]device.Worker, len(members))
	for i, m := range members {
		workers[i] = device.Worker{Name: m.Name, Count: m.DeviceCount, Maps: m.DeviceMaps, Devices: m.Devices}
	}
	return workers
}

// encode returns the record as the store holds it. It refuses a record that could not be decoded again, before other
// members see it.
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

// decodeRecord decodes data, the record that a member stored under key.
func decodeRecord(key string, data []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("store key %q holds no worker's record: %w", key, err)
	}
	return r, nil
}
