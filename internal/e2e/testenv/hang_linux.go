package testenv

import (
	"bytes"
	wire "encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Hang is a file whose readers hang in the kernel, like the readers of a dead file server: they are in uninterruptible
// sleep, state D, and SIGKILL does not end them before Release.
type Hang struct {
	// Path is the file, for processes of root on this machine.
	Path string
	// Reading receives once for every reader that hangs. From then on signals do not reach the reader.
	Reading <-chan struct{}
	// Release ends the wait of all readers and makes the file useless. Further calls do nothing.
	Release func()
}

// NewHang makes a Hang: a file system in user space (fuse) that accepts read requests and never answers them. It mounts
// the file system in the mount namespace of one thread of this process: the machine does not see it, and it ends with
// the process. It needs root and /dev/fuse.
func NewHang(t testing.TB) *Hang {
	t.Helper()
	Root(t)
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		Missing(t, "needs /dev/fuse: %v", err)
	}
	dir := t.TempDir()
	mounted, over := make(chan mountThread), make(chan struct{})
	var done sync.WaitGroup
	mount := func() error {
		options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
		return unix.Mount("hang", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options)
	}
	done.Go(func() { keepMount(mount, mounted, over) })
	where := <-mounted
	if where.err != nil {
		close(over)
		done.Wait()
		_ = unix.Close(fd)
		Missing(t, "needs to mount a file system of its own: %v", where.err)
	}
	// NewFile comes after the mount: before it, a wait for the device is never woken.
	s := &hangServer{device: os.NewFile(uintptr(fd), "/dev/fuse"), reading: make(chan struct{}, 64)}
	done.Go(s.serve)
	release := sync.OnceFunc(func() {
		_ = s.device.Close() // the last descriptor: the kernel ends every request
		close(over)
		done.Wait()
	})
	t.Cleanup(release)
	return &Hang{
		Path:    filepath.Join(fmt.Sprintf("/proc/%d/task/%d/root", os.Getpid(), where.tid), dir, "file"),
		Reading: s.reading, Release: release,
	}
}

// hangServer answers the kernel's requests to the file system: see fuse(4) and linux/fuse.h.
type hangServer struct {
	device  *os.File
	reading chan struct{}
}

// Opcodes of fuse, and values in the answers.
const (
	fuseLookup, fuseForget, fuseGetattr, fuseOpen, fuseRead = 1, 2, 3, 14, 15
	fuseInit, fuseInterrupt, fuseBatchForget                = 26, 36, 42

	fuseRoot, fuseFile = 1, 2 // the two inodes
	fuseDirectIO       = 1    // else a reader waits for a page, which SIGKILL ends
	fuseForHours       = 3600 // seconds for which answers stay valid
)

type fuseHeader struct {
	Len, Opcode    uint32
	Unique, NodeID uint64
	UID, GID, PID  uint32
	_              uint32
}

type fuseAttr struct {
	Ino, Size, Blocks, Atime, Mtime, Ctime                                            uint64
	Atimensec, Mtimensec, Ctimensec, Mode, Nlink, UID, GID, Rdev, Blksize, FlagsUnset uint32
}

func (s *hangServer) serve() {
	request := make([]byte, 1<<17)
	for {
		n, err := s.device.Read(request)
		switch {
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT): // the kernel withdrew a request
			continue
		case err != nil:
			return
		}
		var h fuseHeader
		if wire.Read(bytes.NewReader(request[:n]), wire.LittleEndian, &h) == nil {
			s.answer(h)
		}
	}
}

func (s *hangServer) answer(h fuseHeader) {
	switch h.Opcode {
	case fuseRead:
		s.reading <- struct{}{}
	case fuseForget, fuseBatchForget, fuseInterrupt: // need no answer
	case fuseInit:
		s.reply(h, 0, [16]uint32{7, 31, 0, 0, 0, 4096, 1})
	case fuseLookup:
		s.reply(h, 0, struct {
			NodeID, Generation, EntryValid, AttrValid uint64
			EntryNsec, AttrNsec                       uint32
			Attr                                      fuseAttr
		}{NodeID: fuseFile, EntryValid: fuseForHours, AttrValid: fuseForHours, Attr: attrOf(fuseFile)})
	case fuseGetattr:
		s.reply(h, 0, struct {
			Valid    uint64
			Nsec, _  uint32
			AttrItem fuseAttr
		}{Valid: fuseForHours, AttrItem: attrOf(h.NodeID)})
	case fuseOpen:
		s.reply(h, 0, struct {
			Handle          uint64
			Flags, _Backing uint32
		}{Flags: fuseDirectIO})
	default:
		s.reply(h, unix.ENOSYS, struct{}{})
	}
}

func attrOf(inode uint64) fuseAttr {
	a := fuseAttr{Ino: inode, Size: 1 << 20, Nlink: 1, Mode: unix.S_IFREG | 0o644, Blksize: 4096}
	if inode == fuseRoot {
		a.Mode = unix.S_IFDIR | 0o755
	}
	return a
}

func (s *hangServer) reply(h fuseHeader, failed unix.Errno, body any) {
	var out bytes.Buffer
	_ = wire.Write(&out, wire.LittleEndian, struct {
		Len    uint32
		Error  int32
		Unique uint64
	}{uint32(16 + wire.Size(body)), -int32(failed), h.Unique})
	_ = wire.Write(&out, wire.LittleEndian, body)
	_, _ = s.device.Write(out.Bytes()) // fails if the kernel has withdrawn the request
}
