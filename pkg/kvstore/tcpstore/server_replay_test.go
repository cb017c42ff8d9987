package tcpstore

import (
	"bytes"
	"strings"
	"testing"
)

func protocolOf(version string) Protocol {
	if strings.HasPrefix(version, "1.") {
		return ProtocolV1
	}
	return ProtocolV2
}

// TestReplay plays each recorded client and compares the replies with the recorded ones.
func TestReplay(t *testing.T) {
	for version, calls := range recordings(t) {
		t.Run(version, func(t *testing.T) {
			_, addr := startServer(t, ServerOptions{})
			c := dial(t, addr, protocolUnknown)
			for _, call := range calls {
				if strings.HasPrefix(call.Op, "clone") {
					c.close()
					c = dial(t, addr, protocolUnknown)
				}
				c.write(call.C2S)
				if got := c.nc.read(t, len(call.S2C)); !bytes.Equal(got, call.S2C) {
					t.Fatalf("%s: server sent %x, recorded is %x", call.Op, got, call.S2C)
				}
			}
			c.p = protocolOf(version)
			c.ping()
		})
	}
}

// TestReplaySplit plays the bytes of each recorded client in one piece, byte by byte, and cut once at every position.
func TestReplaySplit(t *testing.T) {
	for version, calls := range recordings(t) {
		t.Run(version, func(t *testing.T) {
			var c2s, s2c []byte
			for _, call := range calls {
				c2s = append(c2s, call.C2S...)
				s2c = append(s2c, call.S2C...)
			}
			play := func(pieces ...[]byte) {
				t.Helper()
				c := stepLoop(t, ServerOptions{}).connect(protocolUnknown)
				for _, piece := range pieces {
					c.write(piece)
				}
				if got := c.nc.read(t, len(s2c)); !bytes.Equal(got, s2c) {
					t.Fatalf("in %d pieces of which the first has %d bytes: server sent\n%x, recorded is\n%x",
						len(pieces), len(pieces[0]), got, s2c)
				}
				c.p = protocolOf(version)
				c.ping()
				c.close()
			}
			play(c2s)
			for cut := 1; cut < len(c2s); cut++ {
				play(c2s[:cut], c2s[cut:])
			}
			var bytewise [][]byte
			for i := range c2s {
				bytewise = append(bytewise, c2s[i:i+1])
			}
			play(bytewise...)
		})
	}
}
