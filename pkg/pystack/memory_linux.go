package pystack

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// processMemory is the memory of a running process.
type processMemory struct {
	pid int
}

// readAt reads with process_vm_readv, which needs no open file and checks the right to read in each call.
func (m processMemory) readAt(p []byte, addr uint64) error {
	if len(p) == 0 {
		return nil
	}
	local := []unix.Iovec{{Base: &p[0]}}
	local[0].SetLen(len(p))
	n, err := unix.ProcessVMReadv(m.pid, local, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(p)}}, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return ErrExited
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS):
		return &UnsupportedError{Reason: fmt.Sprintf("no permission to read process %d", m.pid), Err: err}
	case err != nil:
		return fmt.Errorf("read %d bytes at %#x: %w", len(p), addr, err)
	case n != len(p): // the rest is not mapped
		return fmt.Errorf("read %d bytes at %#x: %w", len(p), addr, io.ErrUnexpectedEOF)
	}
	return nil
}

// readPages reads with one call of process_vm_readv.
func (m processMemory) readPages(pages []*[pageSize]byte, addrs []uint64) error {
	if len(pages) == 0 {
		return nil
	}
	local, remote := make([]unix.Iovec, len(pages)), make([]unix.RemoteIovec, len(pages))
	for i, page := range pages {
		local[i].Base = &page[0]
		local[i].SetLen(pageSize)
		remote[i] = unix.RemoteIovec{Base: uintptr(addrs[i]), Len: pageSize}
	}
	n, err := unix.ProcessVMReadv(m.pid, local, remote, 0)
	if err == nil && n != len(pages)*pageSize {
		err = io.ErrUnexpectedEOF
	}
	return err
}
