package founding

// EarlierGroup records that an agent at this endpoint founded a store, which other agents may still serve. The record
// is a file beside the store's marker: it outlives the agent, but not a reboot of the machine.
type EarlierGroup struct {
	Label string `json:"label,omitempty"` // C10d.Label
	// Launch is the id of the founder's launch; empty if it is not known.
	Launch string `json:"launch,omitempty"`
	// Addrs are the addresses of the other agents that can keep the store.
	Addrs []string `json:"addrs"`
	// Others is the number of agents of the job besides the founder and the agents in Addrs. Min is the smallest number of
	// nodes of a round.
	Others int `json:"others"`
	Min    int `json:"min"`
}
