package membership

import (
	"github.com/elasticrun/elasticrun/pkg/rpc/device"
)

// Version is that of what members say to each other, in the store and in calls. Members of different versions do not
// form a group.
const Version = 1

// Record is what a member tells the others of itself. The store holds it as JSON.
type Record struct {
	Version int `json:"version"`
	// Name is unique in the group; see [CheckName].
	Name string `json:"name"`
	// ID is the rank in a static group. A dynamic one numbers its members as they join, from 0, and no number is given twice.
	ID int `json:"id"`
	// WorldSize is the number of members of a static group, and 0 in a dynamic one.
	WorldSize int `json:"world_size,omitempty"`
	// Incarnation tells this member from any other process that has its name or address, before and after. It is random.
	Incarnation uint64 `json:"incarnation,string"`
	// Host is the machine's name. A loopback address is good for members of the same host only.
	Host string `json:"host"`
	// Address is where the member listens, HOST:PORT.
	Address string `json:"address"`
	// Secure tells that it speaks TLS.
	Secure bool `json:"secure,omitempty"`

	// DeviceCount is the number of GPUs that the member sees.
	DeviceCount int `json:"device_count,omitempty"`
	// DeviceMaps are the member's own, by the name of the target.
	DeviceMaps map[string]device.Map `json:"device_maps,omitempty"`
	// Devices are those that the member has declared; none leaves them to be derived.
	Devices []device.Device `json:"devices,omitempty"`
}
