package rounds

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// A record is one value in the store, so that it is written as a whole or not at all. The record of a job of common
// size is JSON, which people can read. A record larger than plainRecord is compressed, because a commit holds at most
// coord.MaxCommit bytes: of 12,000 nodes, each takes 120 bytes as JSON and 50 compressed, most of them random. A
// compressed record lists losses by rank, so that it has no identity twice. If it is still too large, the hosts are
// left out, which are only for people, and then the losses: the job is worth more than the memory of lost nodes.

const (
	// plainRecord is the largest size in bytes of a record that is written as plain JSON.
	plainRecord = 64 << 10
	// maxRecord is the largest size of a decompressed record in bytes: that of several hundred thousand nodes.
	maxRecord = 64 << 20
	// roomForKeys is the size of a commit beside its record, in bytes.
	roomForKeys = 4 << 10
)

// packedRecord is the content of a compressed record.
type packedRecord struct {
	Record Record `json:"record"`
	// Lost are the ages of the members' losses, by rank, in milliseconds.
	Lost [][]int64 `json:"lost,omitempty"`
}

// EncodeValue encodes a value of the leader for the store: as JSON, and a large [Record] compressed. The result may be
// larger than a commit can hold.
func EncodeValue(v any) ([]byte, error) {
	r, ok := v.(Record)
	if !ok {
		return json.Marshal(v)
	}
	plain, err := json.Marshal(r)
	if err != nil || len(plain) <= plainRecord {
		return plain, err
	}
	b, err := encodePacked(r)
	if tooLarge(b) && err == nil {
		r.Members = slices.Clone(r.Members)
		for i := range r.Members {
			r.Members[i].Host = ""
		}
		b, err = encodePacked(r)
	}
	if tooLarge(b) && err == nil {
		r.Losses = nil
		b, err = encodePacked(r)
	}
	return b, err
}

// tooLarge reports whether a commit cannot hold an encoded record.
func tooLarge(record []byte) bool { return len(record) > coord.MaxCommit-roomForKeys }

// encodePacked encodes a record as compressed JSON.
func encodePacked(r Record) ([]byte, error) {
	p := packedRecord{Record: r}
	if r.Losses != nil {
		p.Lost = make([][]int64, len(r.Members))
		p.Record.Losses = maps.Clone(r.Losses)
		for rank, m := range r.Members {
			for _, age := range r.Losses[m.Identity] {
				p.Lost[rank] = append(p.Lost[rank], age.Milliseconds())
			}
			delete(p.Record.Losses, m.Identity)
		}
	}
	plain, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return compress(plain)
}

func compress(plain []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

// DecodeRecord decodes into r a record that EncodeValue has encoded.
func DecodeRecord(b []byte, r *Record) error {
	if !bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
		return json.Unmarshal(b, r)
	}
	in, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("decompress the record: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(in, maxRecord+1))
	switch {
	case err != nil:
		return fmt.Errorf("decompress the record: %w", err)
	case len(plain) > maxRecord:
		return fmt.Errorf("decompress the record: larger than %d bytes", maxRecord)
	}
	var p packedRecord
	if err := json.Unmarshal(plain, &p); err != nil {
		return err
	}
	*r = p.Record
	for rank, ages := range p.Lost {
		if len(ages) == 0 || rank >= len(r.Members) {
			continue
		}
		identity := r.Members[rank].Identity
		for _, age := range ages {
			put(&r.Losses, identity, append(r.Losses[identity], time.Duration(age)*time.Millisecond))
		}
	}
	return nil
}
