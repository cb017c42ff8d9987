package tcpstore

import (
	"net"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEvictable checks which unused connections may be closed: the oldest first, but for each address as many are kept
// as it has torch 1.13 connections in use.
func TestEvictable(t *testing.T) {
	type peer struct {
		ip       string
		protocol Protocol
		partial  bool // part of a request has arrived
	}
	for _, tt := range []struct {
		name  string
		peers []peer
		want  []uint64
	}{
		{"none", nil, nil},
		{"unknown peers", []peer{{ip: "10.0.0.1"}, {"10.0.0.2", ProtocolV2, false}, {ip: "10.0.0.2"}}, []uint64{1, 3}},
		{"part of the first request", []peer{{ip: "10.0.0.1", partial: true}}, nil},
		{"torch 1.13", []peer{{"10.0.0.1", ProtocolV1, false}, {ip: "10.0.0.1"}, {ip: "10.0.0.2"}}, []uint64{3}},
		{
			"beside torch 1.13",
			[]peer{{"10.0.0.1", ProtocolV1, false}, {ip: "10.0.0.1"}, {ip: "10.0.0.1"}, {ip: "10.0.0.1"}},
			[]uint64{3, 4},
		},
	} {
		l := &loop{}
		for i, p := range tt.peers {
			c := &conn{loop: l, number: uint64(i + 1), remote: &net.TCPAddr{IP: net.ParseIP(p.ip), Port: i}}
			if c.dec.protocol = p.protocol; p.partial {
				c.in = []byte{0}
			}
			l.conns = slices.Insert(l.conns, 0, c) // in any order
		}
		var got []uint64
		for _, c := range l.evictable() {
			got = append(got, c.number)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// At MaxConns, a new connection takes the place of the oldest unused one.
func TestMaxConnsEvictsUnused(t *testing.T) {
	s, addr := startServer(t, ServerOptions{MaxConns: 2})
	silent, used := dial(t, addr, protocolUnknown), dial(t, addr, ProtocolV2)
	used.ping()
	newcomer := dial(t, addr, ProtocolV2)
	newcomer.ping()
	silent.expectClosed()
	used.ping()
	if stats := s.Stats(); stats.Open != 2 || stats.Refused[ReasonSilent] != 1 || stats.Refused[ReasonMaxConns] != 0 {
		t.Errorf("stats: %+v", stats)
	}
}
