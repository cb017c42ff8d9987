package guard

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"golang.org/x/sys/unix"
)

// A record is in a file in memory that guard and agent share. So the agent stores it with a single system call, and the
// kernel keeps it if the agent is killed. The file has a checksum, a byte with the length, and the record. The checksum
// detects a write that a kill has cut off.

// newRecordFile returns the file, or -1 where the kernel or a container's filter has none: then no record is kept. The
// file has its memory from the beginning, so that the agent cannot fail to replace a record.
func newRecordFile() int {
	fd, err := unix.MemfdCreate("elasticrun-record", unix.MFD_CLOEXEC)
	if err != nil {
		return -1
	}
	if _, err := unix.Pwrite(fd, make([]byte, 5+MaxRecord), 0); err != nil {
		_ = unix.Close(fd)
		return -1
	}
	return fd
}

// SetRecord stores at most [MaxRecord] bytes, in place of the previous record. [Result.Record] returns them once this
// process has ended, however it ended. An empty record removes the previous one. It costs one system call. An error
// means that the guard has no record.
func (l *Lifeline) SetRecord(record []byte) error {
	if l == nil {
		return nil
	}
	if len(record) > MaxRecord {
		return fmt.Errorf("set the guard's record: it has %d bytes; at most %d are allowed", len(record), MaxRecord)
	}
	b := append([]byte{0, 0, 0, 0, byte(len(record))}, record...)
	binary.BigEndian.PutUint32(b, crc32.ChecksumIEEE(b[4:]))
	if _, err := unix.Pwrite(l.record, b, 0); err != nil {
		return fmt.Errorf("set the guard's record: %w", err)
	}
	return nil
}

// readRecord returns the record in the file, or nil if there is none.
func readRecord(fd int) []byte {
	b := make([]byte, 5+MaxRecord)
	n, err := unix.Pread(fd, b, 0)
	if err != nil || n < 5 || n < 5+int(b[4]) {
		return nil
	}
	b = b[:5+int(b[4])]
	if len(b) == 5 || binary.BigEndian.Uint32(b) != crc32.ChecksumIEEE(b[4:]) {
		return nil
	}
	return b[5:]
}
