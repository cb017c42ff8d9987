package membership

import (
	"github.com/elasticrun/elasticrun/pkg/rpc/device"
)

// Version is the version of the protocol between members, in the store and in calls. Members with different versions do
// not form a group.
const Version = 1

// Record describes a member to the others. The store holds it as JSON.
type Record struct {
	Version int `json:"version"`
	// Name is unique in the group; see [CheckName].
	Name string `json:"name"`
	// ID is the rank in a static group. A dynamic group numbers its members from 0 in the order of their joins and
	// never reuses a number.
	ID int `json:"id"`
	// WorldSize is the number of members of a static group, and 0 in a dynamic group.
	WorldSize int `json:"world_size,omitempty"`
	// Incarnation distinguishes this process from every other process with its name or address. It is random.
	Incarnation uint64 `json:"incarnation,string"`
	// Host is the name of the machine. Only members on the same host can reach a loopback address.
	Host string `json:"host"`
	// Address is where the member listens, as HOST:PORT.
	Address string `json:"address"`
	// Secure reports whether the member uses TLS.
	Secure bool `json:"secure,omitempty"`

	// DeviceCount is the number of GPUs that the member sees.
	DeviceCount int `json:"device_count,omitempty"`
	// DeviceMaps are the member's own device maps. The key is the name of the target worker.
	DeviceMaps map[string]device.Map `json:"device_maps,omitempty"`
	// Devices are the devices that the member declares. If empty, they are derived from the maps.
	Devices []device.Device `json:"devices,omitempty"`
}
