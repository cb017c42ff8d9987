package elastic

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// A record is one value of the store, so that it is written at once or not at all. That of a job of a common size is JSON, which people can read.
// Beyond plainRecord it is packed, since a store takes coord.MaxCommit bytes: 12,000 nodes take 100 bytes each as JSON, and 43 packed, most
// of which are random. The times of losses stand with the members, so that no identity is in it twice. They are left out of a record that still does not
// fit: the job is worth more than the memory of who was lost.

const (
	plainRecord = 64 << 10
	// maxRecord is the most that a packed record may unpack to, in bytes: that of several hundred thousand nodes.
	maxRecord = 64 << 20
	// roomForKeys is what a commit with a record has besides, in bytes.
	roomForKeys = 4 << 10
)

// packedRecord is what a packed record unpacks to.
type packedRecord struct {
	Record Record `json:"record"`
	// Lost are the ages of the members' losses, by rank, in milliseconds.
	Lost [][]int64 `json:"lost,omitempty"`
}

// encodeValue writes a value of the leader's for the store.
func encodeValue(v any) ([]byte, error) {
	r, ok := v.(Record)
	if !ok {
		return json.Marshal(v)
	}
	plain, err := json.Marshal(r)
	if err != nil || len(plain) <= plainRecord {
		return plain, err
	}
	b, err := encodePacked(r)
	if err == nil && len(b) > coord.MaxCommit-roomForKeys {
		r.Losses = nil
		b, err = encodePacked(r)
	}
	return b, err
}

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
	return packed(plain)
}

func packed(plain []byte) ([]byte, error) {
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

// decodeRecord reads a record that encodeValue has written.
func decodeRecord(b []byte, r *Record) error {
	if !bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
		return json.Unmarshal(b, r)
	}
	in, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("unpack the record: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(in, maxRecord+1))
	switch {
	case err != nil:
		return fmt.Errorf("unpack the record: %w", err)
	case len(plain) > maxRecord:
		return errors.New("unpack the record: it is too large")
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
		if r.Losses == nil {
			r.Losses = map[string][]time.Duration{}
		}
		identity := r.Members[rank].Identity
		for _, age := range ages {
			r.Losses[identity] = append(r.Losses[identity], time.Duration(age)*time.Millisecond)
		}
	}
	return nil
}
