package founding

// EarlierGroup says that a store which an agent at this endpoint has founded may go on at other agents. It is in a file
// beside the store's marker, so it outlives the agent, but not the machine's boot.
type EarlierGroup struct {
	Label string `json:"label,omitempty"` // C10d.Label
	// Launch is the id of the founder's launch; empty if it is not known.
	Launch string `json:"launch,omitempty"`
	// Addrs are the addresses of the other agents that can keep the store.
	Addrs []string `json:"addrs"`
	// Others is how many agents the job has besides them and the founder, and Min the smallest number of nodes of a round.
	Others int `json:"others"`
	Min    int `json:"min"`
}
