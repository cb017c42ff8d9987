package hosts

import "fmt"

// The priorities of ip-rule(8). firewallRule must come before localRule, which finds the packets for the host itself.
// In a new namespace the local rule has priority 0, before all others.
const (
	firewallRule = 50
	localRule    = 100
)

// Block loses every packet from other hosts to these ports of h, as a firewall does. Only one range of ports can be
// blocked at a time. Unblock ends this.
func (h *Host) Block(low, high int) {
	h.lab.t.Helper()
	h.lab.ip(h.namespace, fmt.Sprintf("rule add pref %d lookup local", localRule), "rule delete pref 0",
		fmt.Sprintf("rule add pref %d iif eth0 ipproto tcp dport %d-%d blackhole", firewallRule, low, high))
}

// Unblock ends Block.
func (h *Host) Unblock() {
	h.lab.t.Helper()
	h.lab.ip(h.namespace, fmt.Sprintf("rule delete pref %d", firewallRule), "rule add pref 0 lookup local",
		fmt.Sprintf("rule delete pref %d", localRule))
}
