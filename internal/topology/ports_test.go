package topology

import (
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// tcpLine is a line of /proc/net/tcp as a little-endian machine prints it.
func tcpLine(local, state string, uid, inode int) string {
	return fmt.Sprintf(
		"   0: %s 00000000:0000 %s 00000000:00000000 00:00000000 00000000 %5d        0 %d 1 00000000f07fda52 100 0 0 10 0\n",
		local,
		state,
		uid,
		inode,
	)
}

const tcpHeading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

// process adds a process whose descriptor 3 is the socket with this inode.
func process(fsys fstest.MapFS, pid int, cmdline string, inode int) {
	dir := fmt.Sprint(pid)
	fsys[dir+"/cmdline"] = &fstest.MapFile{Data: []byte(cmdline)}
	fsys[dir+"/comm"] = &fstest.MapFile{Data: []byte("comm" + dir + "\n")}
	fsys[dir+"/fd/0"] = &fstest.MapFile{Data: []byte("/dev/null"), Mode: fs.ModeSymlink}
	fsys[dir+"/fd/3"] = &fstest.MapFile{Data: []byte(fmt.Sprintf("socket:[%d]", inode)), Mode: fs.ModeSymlink}
}

func TestPortOwnerFromTables(t *testing.T) {
	littleEndianOnly(t)
	// 733C is 29500.
	tests := []struct {
		name      string
		tcp, tcp6 string
		addr      string
		want      string
	}{
		{
			name: "listener",
			tcp:  tcpLine("00000000:733C", "0A", 1000, 77),
			want: "port 29500 is held by pid 1234 (python3 -u train.py)",
		},
		{
			name: "listener of IPv6",
			tcp6: tcpLine("00000000000000000000000000000000:733C", "0A", 1000, 77),
			want: "port 29500 is held by pid 1234 (python3 -u train.py)",
		},
		{name: "other port", tcp: tcpLine("00000000:733D", "0A", 1000, 77), want: "port 29500 is held by an unknown process"},
		{
			name: "other user",
			tcp:  tcpLine("00000000:733C", "0A", 1001, 99),
			want: "port 29500 is held by uid 1001's process, which this user cannot see",
		},
		{
			name: "listener before connections",
			tcp: tcpLine(
				"0100007F:733C",
				"01",
				1000,
				78,
			) + tcpLine(
				"0100007F:733C",
				"0A",
				1000,
				77,
			) + tcpLine(
				"0100007F:733C",
				"06",
				0,
				0,
			),
			want: "port 29500 is held by pid 1234 (python3 -u train.py)",
		},
		{
			name: "a client's own port",
			tcp:  tcpLine("0100007F:733C", "06", 0, 0) + tcpLine("0100007F:733C", "01", 1000, 78),
			want: "port 29500 is held by pid 1300 (comm1300), for a connection in state ESTABLISHED",
		},
		{
			name: "other user's connection", tcp: tcpLine("0100007F:733C", "08", 5, 99),
			want: "port 29500 is held by uid 5's process, which this user cannot see, for a connection in state CLOSE_WAIT",
		},
		{
			name: "closed connection", tcp: tcpLine("0100007F:733C", "06", 0, 0),
			want: "port 29500 is not free yet: a connection that was closed in the last minute still blocks it",
		},
		{
			name: "other address does not count", addr: "127.0.0.1", tcp: tcpLine("0100000A:733C", "0A", 1, 99) + tcpLine("0100007F:733C", "0A", 1000, 77),
			want: "port 29500 is held by pid 1234 (python3 -u train.py)",
		},
		{
			name: "IPv4 address taken by the IPv6 wildcard", addr: "127.0.0.1", tcp6: tcpLine("00000000000000000000000000000000:733C", "0A", 1000, 77),
			want: "port 29500 is held by pid 1234 (python3 -u train.py)",
		},
		{
			name: "inherited by a child",
			tcp:  tcpLine("00000000:733C", "0A", 1000, 80),
			want: "port 29500 is held by pid 9 (server)",
		},
		{name: "no tables", want: "port 29500 is held by an unknown process"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			proc := fstest.MapFS{}
			process(proc, 1234, "python3\x00-u\x00train.py\x00", 77)
			process(proc, 1300, "", 78)
			process(proc, 10, "server\x00--child\x00", 80)
			process(proc, 9, "server\x00", 80)
			proc["1400/comm"] = &fstest.MapFile{Data: []byte("hidden\n")}
			for name, text := range map[string]string{"net/tcp": tt.tcp, "net/tcp6": tt.tcp6} {
				if text != "" {
					proc[name] = &fstest.MapFile{Data: []byte(tcpHeading + text)}
				}
			}
			addr, _ := netip.ParseAddr(tt.addr)
			owner, err := portOwner(proc, addr, 29500)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, owner.String()); diff != "" {
				t.Errorf("portOwner (-want +got):\n%s", diff)
			}
		})
	}
}

func littleEndianOnly(t *testing.T) {
	t.Helper()
	switch runtime.GOARCH {
	case "amd64", "arm64", "riscv64", "ppc64le", "loong64":
	default:
		t.Skip("the tables in this test are a little-endian machine's")
	}
}

func TestParseSockets(t *testing.T) {
	littleEndianOnly(t)
	text := tcpHeading +
		tcpLine("0101007F:0050", "0A", 33, 12) +
		"garbage\n" +
		tcpLine("xx:0050", "0A", 33, 12) +
		tcpLine("000080FE00000000FF005450D1B2FEFF:1F90", "03", 0, 0) +
		tcpLine("0000000000000000FFFF00000100007F:1F91", "0C", 7, 13) +
		tcpLine("00000000:1F91", "0A", 7, 13)[:40]
	want := []socket{
		{local: netip.MustParseAddrPort("127.0.1.1:80"), state: "LISTEN", uid: 33, inode: 12},
		{local: netip.MustParseAddrPort("[fe80::5054:ff:fffe:b2d1]:8080"), state: "SYN_RECV"},
		{local: netip.MustParseAddrPort("127.0.0.1:8081"), state: "0xc", uid: 7, inode: 13},
	}
	if diff := cmp.Diff(want, parseSockets(text), cmp.AllowUnexported(socket{}), cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Errorf("parseSockets (-want +got):\n%s", diff)
	}
}

func FuzzParseSockets(f *testing.F) {
	f.Add(tcpHeading + tcpLine("0100007F:733C", "0A", 1000, 77))
	f.Add(tcpLine("0000000000000000FFFF00000100007F:1F91", "0C", 7, 13))
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range parseSockets(text) {
			if !s.local.IsValid() || s.state == "" || s.uid < 0 {
				t.Errorf("parsed %+v", s)
			}
		}
	})
}

func TestConflict(t *testing.T) {
	tests := []struct {
		wanted, held string
		want         bool
	}{
		{"", "10.0.0.1", true},
		{"127.0.0.1", "127.0.0.1", true},
		{"127.0.0.1", "10.0.0.1", false},
		{"0.0.0.0", "10.0.0.1", true},
		{"10.0.0.1", "0.0.0.0", true},
		{"::", "10.0.0.1", true},
		{"10.0.0.1", "::", true},
		{"0.0.0.0", "::1", false},
		{"::1", "0.0.0.0", false},
		{"::1", "::", true},
		{"::ffff:10.0.0.1", "10.0.0.1", true},
	}
	for _, tt := range tests {
		wanted, _ := netip.ParseAddr(tt.wanted)
		if got := conflict(wanted, netip.MustParseAddr(tt.held)); got != tt.want {
			t.Errorf("conflict(%q, %q) = %v, want %v", tt.wanted, tt.held, got, tt.want)
		}
	}
}

func TestCommandIsOnePrintableLine(t *testing.T) {
	proc := fstest.MapFS{}
	process(proc, 7, "sh\x00-c\x00echo \x1b[31m\n"+strings.Repeat("é", 200), 1)
	got := command(proc, 7)
	if want := "sh -c echo ?[31m?" + strings.Repeat("é", maxCommand-17) + "…"; got != want {
		t.Errorf("command = %q, want %q", got, want)
	}
}

// deniedFS is a file system in which one file may not be read.
type deniedFS struct {
	fs.FS
	name string
}

func (d deniedFS) Open(name string) (fs.File, error) {
	if name == d.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return d.FS.Open(name)
}

func TestPortOwnerUnreadableTable(t *testing.T) {
	_, err := portOwner(deniedFS{fstest.MapFS{}, "net/tcp"}, netip.Addr{}, 29500)
	if want := "find who holds port 29500: open net/tcp: permission denied"; errorText(err) != want {
		t.Errorf("error %q, want %q", errorText(err), want)
	}
}

func TestPortOwnerCannotListDescriptors(t *testing.T) {
	littleEndianOnly(t)
	proc := fstest.MapFS{"net/tcp": &fstest.MapFile{Data: []byte(tcpLine("00000000:733C", "0A", 1002, 77))}}
	process(proc, 1234, "secret\x00", 77)
	owner, err := portOwner(deniedFS{proc, "1234/fd"}, netip.Addr{}, 29500)
	if err != nil {
		t.Fatal(err)
	}
	want := Owner{Port: 29500, State: "LISTEN", Addr: netip.IPv4Unspecified(), UID: 1002}
	if diff := cmp.Diff(want, owner, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("portOwner (-want +got):\n%s", diff)
	}
}

func TestPortOwnerOfOwnListener(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc/net/tcp")
	}
	for _, network := range []string{"tcp4", "tcp6"} {
		t.Run(network, func(t *testing.T) {
			host := map[string]string{"tcp4": "127.0.0.1", "tcp6": "::1"}[network]
			listener, err := net.Listen(network, net.JoinHostPort(host, "0"))
			if err != nil {
				t.Skipf("no %s here: %v", network, err)
			}
			defer listener.Close()
			bound := listener.Addr().(*net.TCPAddr).AddrPort()
			want := Owner{
				Port: int(bound.Port()), State: "LISTEN", Addr: bound.Addr(), UID: os.Geteuid(),
				PID: os.Getpid(), Command: command(os.DirFS("/proc"), os.Getpid()),
			}
			for _, addr := range []netip.Addr{{}, bound.Addr()} {
				got, err := PortOwner(addr, int(bound.Port()))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
					t.Errorf("PortOwner of %v (-want +got):\n%s", addr, diff)
				}
			}
			if !strings.Contains(want.Command, "topology.test") {
				t.Errorf("command of this test is %q", want.Command)
			}
		})
	}
}
