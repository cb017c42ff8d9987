package group

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/coord/replica"
)

func TestFrames(t *testing.T) {
	var stream bytes.Buffer
	frames := []frame{
		{kind: frameHello, addr: "host:29400", instance: "I"},
		{kind: frameHello},
		{kind: frameAdopt, id: 7},
		{kind: frameLeave, id: 1 << 40},
		{kind: frameRemoved, id: 3},
		{kind: frameAsk, id: 4},
		{kind: frameAnnounce, label: "run \"job7\""},
		{kind: frameAnnounce},
		{kind: frameRelay, addr: "host:29400", instance: "I", label: "run"},
		{kind: frameReach, id: 9, texts: []string{"host:29400", "other:29400"}},
		{kind: frameReach, id: 9},
		{kind: frameMissed, texts: []string{"host:29400", "no route"}},
		{kind: frameMissed},
		{kind: frameRaft, message: bytes.Repeat([]byte("m"), 100_000)},
	}
	for _, f := range frames {
		stream.Write(f.encode())
	}
	for _, want := range frames {
		got, err := readFrame(&stream, maxFrame)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(frame{})); diff != "" {
			t.Errorf("kind %d (-want +got):\n%s", want.kind, diff)
		}
	}
}

// FuzzFrame checks that no bytes make readFrame panic, and that encode reproduces every frame that readFrame accepts.
func FuzzFrame(f *testing.F) {
	f.Add(frame{kind: frameHello, addr: "host:1", instance: "I"}.encode())
	f.Add(frame{kind: frameAdopt, id: replica.ID(300)}.encode())
	f.Add(frame{kind: frameRaft, message: []byte("message")}.encode())
	f.Add(frame{kind: frameAnnounce, label: "label"}.encode())
	f.Add(frame{kind: frameReach, id: 300, texts: []string{"host:1", ""}}.encode())
	f.Add(frame{kind: frameMissed, texts: []string{"host:1", "no route"}}.encode())
	f.Add([]byte{0x40, 0, 0, 0, 1}) // claims 1 GiB
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readFrame(bytes.NewReader(b), maxFrame)
		if err != nil {
			return
		}
		again, err := readFrame(bytes.NewReader(got.encode()), maxFrame)
		if err != nil || !cmp.Equal(got, again, cmp.AllowUnexported(frame{})) {
			t.Errorf("%+v became %+v, %v", got, again, err)
		}
	})
}
