package rounds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/elasticrun/elasticrun/pkg/coord"
)

// bigRecord returns a round of n nodes with identities like those of machines. Each node was lost that many times and
// has come back.
func bigRecord(n, losses int) Record {
	rng := rand.New(rand.NewPCG(1, 2))
	r := Record{Round: 7, Restarts: 3}
	if losses > 0 {
		r.Losses = map[string][]time.Duration{}
	}
	for i := range n {
		m := RecordMember{
			ID: coord.SessionID(randomText(rng, 26, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")), Role: "default", Nproc: 8,
			Host:     fmt.Sprintf("node%05d.cluster.example", i),
			Identity: "machine:" + randomText(rng, 32, "0123456789abcdef") + "/0",
		}
		r.Members = append(r.Members, m)
		for range losses {
			age := time.Duration(rng.Int64N(lossWindow.Milliseconds())) * time.Millisecond
			r.Losses[m.Identity] = append(r.Losses[m.Identity], age)
		}
	}
	r.Members[0].Store = &Offer{Addrs: []string{"10.0.0.1"}, Port: 29501, Nonce: "0123"}
	return r
}

// randomText returns n random bytes of the alphabet.
func randomText(rng *rand.Rand, n int, alphabet string) string {
	out := make([]byte, n)
	for i := range out {
		out[i] = alphabet[rng.IntN(len(alphabet))]
	}
	return string(out)
}

// TestRecordIsPlain checks that the record of a job of common size is JSON, which people can read.
func TestRecordIsPlain(t *testing.T) {
	b, err := EncodeValue(bigRecord(100, 1))
	if err != nil || !json.Valid(b) {
		t.Errorf("%.100q, %v", b, err)
	}
}

// TestRecordIsBounded checks that malformed records, and those that would decompress to too much, are errors.
func TestRecordIsBounded(t *testing.T) {
	const part = 1 << 20
	zeros, err := compress(make([]byte, part))
	if err != nil {
		t.Fatal(err)
	}
	bomb := bytes.Repeat(zeros, maxRecord/part+1) // gzip reads a sequence of files as one
	big, err := EncodeValue(bigRecord(12000, 0))
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"too large": bomb, "cut": big[:len(big)/2], "empty": nil, "not compressed": {0x1f, 0x8b},
	} {
		if err := DecodeRecord(b, new(Record)); err == nil || strings.Contains(err.Error(), "larger") != (name == "too large") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRecordTooLarge checks that a record that is too large is written without its hosts and losses.
func TestRecordTooLarge(t *testing.T) {
	r := bigRecord(12000, 25)
	b, err := EncodeValue(r)
	if err != nil {
		t.Fatal(err)
	}
	var got Record
	if err := DecodeRecord(b, &got); err != nil {
		t.Fatal(err)
	}
	if len(b) > coord.MaxCommit/2 || got.Members[0].Host != "" || got.Losses != nil || len(got.Members) != len(r.Members) {
		t.Errorf("%d bytes, %d losses, %d members", len(b), len(got.Losses), len(got.Members))
	}
}

func BenchmarkEncodeRecord(b *testing.B) {
	r := bigRecord(12000, 1)
	for b.Loop() {
		out, err := EncodeValue(r)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(out)), "bytes")
	}
}
