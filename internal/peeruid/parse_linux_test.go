package peeruid

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var example = tuple{local: netip.MustParseAddrPort("127.0.0.1:40000"), remote: netip.MustParseAddrPort("127.0.0.2:29400")}

// answer returns the kernel's answer about a socket of user 1000.
func answer(t tuple) []byte {
	b := diagRequest(t, loopback)
	b = append(b[:unix.NLMSG_HDRLEN], b[unix.NLMSG_HDRLEN+socketAt-foundAt:]...)
	b[unix.NLMSG_HDRLEN], b[unix.NLMSG_HDRLEN+stateAt] = family(t.local.Addr()), unix.BPF_TCP_ESTABLISHED
	b = append(b, make([]byte, unix.NLMSG_HDRLEN+answerSize-len(b))...)
	binary.NativeEndian.PutUint32(b[unix.NLMSG_HDRLEN+userAt:], 1000)
	binary.NativeEndian.PutUint32(b[unix.NLMSG_HDRLEN+inodeAt:], 77)
	return b
}

func TestParseDiag(t *testing.T) {
	want := socket{state: unix.BPF_TCP_ESTABLISHED, user: 1000, inode: 77}
	if got, err := parseDiag(answer(example), example); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	other := example
	other.remote = netip.MustParseAddrPort("127.0.0.2:29401")
	for _, tt := range []struct {
		name   string
		answer []byte
		err    string
	}{
		{"another socket", answer(other), errNoSocket.Error()},
		{"cut off", answer(example)[:60], "an answer of type 20 with 60 bytes"},
		{"empty", nil, "an answer of 0 bytes"},
	} {
		if _, err := parseDiag(tt.answer, example); err == nil || err.Error() != tt.err {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.err)
		}
	}
	for errno, want := range map[unix.Errno]error{unix.ENOENT: errNoSocket, unix.EPERM: unix.EPERM} {
		failed := make([]byte, 36)
		binary.NativeEndian.PutUint16(failed[4:], unix.NLMSG_ERROR)
		binary.NativeEndian.PutUint32(failed[unix.NLMSG_HDRLEN:], uint32(-int32(errno)))
		if _, err := parseDiag(failed, example); !errors.Is(err, want) {
			t.Errorf("error %d: %v", errno, err)
		}
	}
}

const procList = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:9C40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 10 1 0000000000000000 100
   1: 0100007F:9C40 0200007F:72D8 01 00000000:00000000 00:00000000 00000000  1000        0 77 1 0000000000000000 20
`

// findInList finds the example in a list.
func findInList(list string) (socket, error) {
	p := &procNet{open: func(name string) (io.ReadCloser, error) {
		if name != "tcp" {
			return nil, fs.ErrNotExist
		}
		return io.NopCloser(strings.NewReader(list)), nil
	}}
	return p.look(example)
}

func FuzzFindInProc(f *testing.F) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 { // the list is one of a little-endian machine
		got, err := findInList(procList)
		if want := (socket{state: unix.BPF_TCP_ESTABLISHED, user: 1000, inode: 77}); err != nil || got != want {
			f.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	f.Add(procList)
	f.Fuzz(func(t *testing.T, list string) {
		found, err := findInList(list)
		if err != nil && found != (socket{}) {
			t.Errorf("%+v with %v", found, err)
		}
	})
}

func FuzzParseDiag(f *testing.F) {
	f.Add(answer(example))
	f.Fuzz(func(t *testing.T, b []byte) {
		found, err := parseDiag(b, example)
		if err != nil && found != (socket{}) {
			t.Errorf("%+v with %v", found, err)
		}
	})
}
