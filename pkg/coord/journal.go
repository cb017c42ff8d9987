package coord

import (
	"crypto/sha256"
	"encoding/binary"
)

// journal gathers what a core has changed and its disk does not have yet. The nil journal is that of a store in
// memory.
//
// What is kept, each number a uvarint and each string behind its length:
//
//	keys      k key, or h and its hash   key, create-revision, TTL, owner's id, value up to the end
//	sessions  id                         TTL, token
//	meta      revision                   number
//	          format                     number, see disk.go
//	          instance                   the store's instance id
type journal struct {
	edits []edit
	count int64         // of all edits ever
	size  int64         // about how many bytes the disk does not have yet
	some  chan struct{} // there are edits; room for one
}

// edit is one write to a disk.
type edit struct {
	bucket string
	key    string
	value  []byte // nil: it is deleted
}

const (
	bucketKeys     = "keys"
	bucketSessions = "sessions"
	bucketMeta     = "meta"
	metaRevision   = "revision"
	metaFormat     = "format"
	metaInstance   = "instance"
)

func (j *journal) add(bucket, key string, value []byte) {
	j.edits = append(j.edits, edit{bucket: bucket, key: key, value: value})
	j.count++
	j.size += editBytes(bucket, key, value)
	select {
	case j.some <- struct{}{}:
	default:
	}
}

func editBytes(bucket, key string, value []byte) int64 {
	return int64(editSize + len(bucket) + len(key) + len(value))
}

// keyOnDisk is where a key is kept: disks do not take them as long as a commit does.
func keyOnDisk(key string) string {
	if len(key) <= 1<<10 {
		return "k" + key
	}
	hash := sha256.Sum256([]byte(key))
	return "h" + string(hash[:])
}

func (j *journal) put(e *entry) {
	if j == nil {
		return
	}
	var owner SessionID
	if e.owner != nil {
		if owner = e.owner.id; e.owner.ttl == 0 {
			j.remove(e.key) // that session ends with the process, and its keys with it
			return
		}
	}
	b := make([]byte, 0, 4*binary.MaxVarintLen64+len(e.key)+len(owner)+len(e.value))
	b = appendNumber(appendString(b, e.key), e.create)
	b = appendString(appendNumber(b, e.ttl), string(owner))
	j.add(bucketKeys, keyOnDisk(e.key), append(b, e.value...))
}

func (j *journal) remove(key string) {
	if j != nil {
		j.add(bucketKeys, keyOnDisk(key), nil)
	}
}

func (j *journal) session(s *session) {
	if j != nil && s.ttl != 0 {
		j.add(bucketSessions, string(s.id), appendString(appendNumber(nil, s.ttl), s.token))
	}
}

func (j *journal) sessionEnd(s *session) {
	if j != nil && s.ttl != 0 {
		j.add(bucketSessions, string(s.id), nil)
	}
}

func (j *journal) revision(r Revision) {
	if j != nil {
		j.add(bucketMeta, metaRevision, appendNumber(nil, r))
	}
}
