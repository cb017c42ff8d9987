package hosts

import "fmt"

// nowhere is a hardware address that no host has. The switch floods frames to it, and every host ignores them.
const nowhere = "02:e1:a5:00:00:01"

// double is the hardware address of the namespace that also has the addresses of other hosts; see ResetAt.
const double = "02:e1:a5:00:00:02"

// DropTo loses every packet that h sends to peer. Packets from peer to h still arrive. Reach ends this.
func (h *Host) DropTo(peer *Host) {
	h.lab.t.Helper()
	h.lab.ip(h.namespace, neighbor(peer, nowhere))
}

// ResetAt makes peer see each of its connections with h reset, while h sees only silence: packets from peer to h go to
// a second machine with the address of h. The kernel of that machine knows none of these connections and answers each
// packet with a reset, which peer attributes to h. Packets from h to peer still arrive. peer.Reach(h) ends this.
func (h *Host) ResetAt(peer *Host) {
	h.lab.t.Helper()
	h.lab.addDouble(h)
	h.lab.ip(peer.namespace, neighbor(h, double))
}

// Reach ends h.DropTo(peer) and peer.ResetAt(h): packets from h to peer arrive again.
func (h *Host) Reach(peer *Host) {
	h.lab.t.Helper()
	// The deletion fails if there is no entry.
	_, _ = run("", "ip", "-netns", h.namespace, "neigh", "delete", peer.Addr, "dev", "eth0")
}

// neighbor returns the line of ip(8) that sends packets for h to a hardware address.
func neighbor(h *Host, hardware string) string {
	return fmt.Sprintf("neigh replace %s lladdr %s dev eth0 nud permanent", h.Addr, hardware)
}

// addDouble adds a machine with a second copy of the address of h. The machine answers no ARP request for that address
// (arp_ignore), so only hosts with a neighbor entry reach it.
func (l *Lab) addDouble(h *Host) {
	l.t.Helper()
	name := l.prefix + "double"
	if !l.doubled {
		l.doubled = true
		if err := addNamespace(name); err != nil {
			l.t.Fatal(err)
		}
		l.ip(l.prefix+switchName,
			"link add double type veth peer name eth0 netns "+name, "link set double master "+mainBridge+" up")
		l.ip(name, "link set eth0 address "+double, "link set lo up", "addr add 10.75.0.254/24 dev eth0",
			"link set eth0 up")
		const quiet = "cd /proc/sys/net/ipv4/conf; echo 8 >all/arp_ignore; echo 0 >all/rp_filter; echo 0 >eth0/rp_filter"
		if _, err := run("", "ip", "netns", "exec", name, "sh", "-c", quiet); err != nil {
			l.t.Fatal(err)
		}
	}
	l.ip(name, "addr replace "+h.Addr+"/32 dev lo")
}
