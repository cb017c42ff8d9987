package rpc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/elasticrun/elasticrun/pkg/rpc/device"
)

type point struct {
	X, Y int
	Note *string `json:"note,omitempty"`
}

// wave encodes itself with value methods, tally with pointer methods.
type wave struct{ samples []float32 }

func (w wave) AppendBinary(b []byte) ([]byte, error) {
	for _, s := range w.samples {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(s))
	}
	return b, nil
}

func (w *wave) UnmarshalBinary(b []byte) error {
	if len(b)%4 != 0 {
		return errors.New("half a sample")
	}
	for ; len(b) > 0; b = b[4:] {
		w.samples = append(w.samples, math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return nil
}

type tally struct{ n byte }

func (c *tally) MarshalBinary() ([]byte, error) { return []byte{c.n}, nil }
func (c *tally) UnmarshalBinary(b []byte) error { c.n = b[0]; return nil }

type nested struct {
	When    time.Time
	Big     *big.Int
	Addr    netip.Addr
	Hash    [4]byte
	Blob    []byte
	Empty   []int
	Nil     []int
	Devices map[device.Device]int
	Inner   *nested
	Any     any
}

// roundTrip encodes a value twice, because equal values must have equal bytes, and returns the decoded value.
func roundTrip[T any](t *testing.T, v T) (T, []byte) {
	t.Helper()
	c, err := newCodec[T]()
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.encode(v)
	if err != nil {
		t.Fatalf("encode %T: %v", v, err)
	}
	if again, _ := c.encode(v); !bytes.Equal(b, again) {
		t.Errorf("%T: %x, and then %x", v, b, again)
	}
	got, err := c.decode(b)
	if err != nil {
		t.Fatalf("decode %T: %v", v, err)
	}
	return got, b
}

func same[T any](t *testing.T, v T) {
	t.Helper()
	got, _ := roundTrip(t, v)
	if diff := cmp.Diff(v, got,
		cmp.Comparer(func(a, b *big.Int) bool { return a == b || a != nil && b != nil && a.Cmp(b) == 0 }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.AllowUnexported(wave{}, tally{})); diff != "" {
		t.Errorf("%T (-sent +received):\n%s", v, diff)
	}
}

func TestCodecRoundTrip(t *testing.T) {
	note := "note"
	same(t, struct{}{})
	same(t, []byte{0, 1, 255})
	same(t, "text with \xff in it")
	same(t, -1)
	same(t, uint64(math.MaxUint64))
	same(t, []float64{0, -1.5, math.Inf(1), math.MaxFloat64})
	same(t, map[string][]int{"b": {1}, "a": nil, "c": {}})
	same(t, map[int]string{3: "c", -1: "a"})
	same(t, point{X: 1, Note: &note})
	same(t, &point{Y: 2})
	same(t, (*point)(nil))
	same(t, []point(nil))
	same(t, []point{})
	same(t, [3]string{"a", "", "c"})
	same(t, wave{samples: []float32{1, 2.5}})
	same(t, &wave{samples: []float32{-1}})
	same(t, tally{n: 7})
	same(t, &tally{n: 8})
	same(t, netip.MustParseAddr("fe80::1"))
	same(t, url.URL{Scheme: "env"})
	same(t, time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600)))
	same(t, nested{
		When: time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.FixedZone("", -7200)),
		Big:  new(big.Int).Lsh(big.NewInt(-3), 100),
		Addr: netip.MustParseAddr("10.0.0.1"), Hash: [4]byte{1, 2, 3, 4}, Blob: []byte("b"), Empty: []int{},
		Devices: map[device.Device]int{device.CUDA(1): 1, device.CPU(): 2},
		Inner:   &nested{Big: big.NewInt(1), Any: "text"},
	})
	same[any](t, "any")
	if got, _ := roundTrip[any](t, map[string]int{"a": 1}); !reflect.DeepEqual(got, map[any]any{"a": uint64(1)}) {
		t.Errorf("a map in any: %#v", got)
	}
	big64 := math.Float64frombits(0x7ff80000deadbeef) // a NaN with a payload
	if got, _ := roundTrip(t, []float64{big64}); math.Float64bits(got[0]) != math.Float64bits(big64) {
		t.Errorf("a NaN arrived as %x", math.Float64bits(got[0]))
	}
	if got, _ := roundTrip(t, float32(math.NaN())); !math.IsNaN(float64(got)) {
		t.Errorf("a NaN arrived as %v", got)
	}
	if got, _ := roundTrip(t, math.Copysign(0, -1)); !math.Signbit(got) {
		t.Error("-0 arrived as 0")
	}
	if got, _ := roundTrip(t, make([]byte, 0)); got == nil {
		t.Error("an empty []byte arrived as nil")
	}
}

// A type that encodes itself is sent as those bytes only, and []byte is not copied.
func TestCodecChoice(t *testing.T) {
	if _, b := roundTrip(t, wave{samples: []float32{1, 2}}); len(b) != 8 {
		t.Errorf("wave: %x", b)
	}
	if _, b := roundTrip(t, &tally{n: 9}); !bytes.Equal(b, []byte{9}) {
		t.Errorf("*tally: %x", b)
	}
	raw := []byte("raw")
	if got, b := roundTrip(t, raw); &b[0] != &raw[0] || &got[0] != &raw[0] {
		t.Error("[]byte was copied")
	}
	if _, b := roundTrip(t, []float64{0, 1}); len(b) != 1+2*9 {
		t.Errorf("[]float64: %d bytes", len(b))
	}
}

// The number of elements and the depth have no limit of their own.
func TestCodecLargeAndDeep(t *testing.T) {
	if got, b := roundTrip(t, make([]bool, 1<<20)); len(got) != 1<<20 || len(b) != 1<<20+5 {
		t.Errorf("%d elements in %d bytes", len(got), len(b))
	}
	deep := any("bottom")
	for range 10_000 {
		deep = []any{deep}
	}
	if got, _ := roundTrip(t, deep); !reflect.DeepEqual(got, deep) {
		t.Error("10,000 levels came back different")
	}
}

func TestCodecBadInput(t *testing.T) {
	refused := func(_ any, err error) string {
		if err == nil {
			return "accepted"
		}
		if !errors.Is(err, ErrEncoding) {
			t.Errorf("%v is not an ErrEncoding", err)
		}
		return err.Error()
	}
	for _, tc := range []struct{ got, want string }{
		{refused(newCodec[chan int]()), "encoding: chan int cannot be sent"},
		{refused(newCodec[func()]()), "encoding: func() cannot be sent"},
		{refused(newCodec[error]()), "encoding: error is an interface, " +
			"and the receiver cannot know the type of its value; use a concrete type"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %s\nwant %s", tc.got, tc.want)
		}
	}
	if c, _ := newCodec[*tally](); c.encode != nil {
		if _, err := c.encode(nil); err == nil || err.Error() != "a nil *rpc.tally cannot be encoded" {
			t.Errorf("nil: %v", err)
		}
	}
	ints, err := newCodec[[]int]()
	if err != nil {
		t.Fatal(err)
	}
	for _, input := range []string{
		"", "\x83\x01\x02", "\x81\x01\x01", "\x61a", "\xff", "\x9b\xff\xff\xff\xff\xff\xff\xff\xff", "\x9f\x01\xff", "\xc1\x81",
		strings.Repeat("\x81", 1<<17),
	} {
		if got, err := ints.decode([]byte(input)); err == nil {
			t.Errorf("%.20x is %v", input, got)
		}
	}
}

func FuzzCodec(f *testing.F) {
	for _, seed := range []any{nested{}, nested{Inner: &nested{Any: []any{1, "a"}}}, map[string]any{"When": "x"}} {
		c, err := newCodec[any]()
		if err != nil {
			f.Fatal(err)
		}
		b, err := c.encode(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	c, err := newCodec[nested]()
	if err != nil {
		f.Fatal(err)
	}
	w, err := newCodec[wave]()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := c.decode(b); err == nil {
			if _, err := c.encode(v); err != nil {
				t.Skip(err) // for example a time whose year has more than four digits
			}
		}
		if v, err := w.decode(b); err == nil {
			if again, err := w.encode(v); err != nil || len(again) != len(b) {
				t.Errorf("%x became %x, %v", b, again, err)
			}
		}
	})
}

func BenchmarkCodec(b *testing.B) {
	xs := make([]float64, 1000)
	for i := range xs {
		xs[i] = float64(i) / 3
	}
	b.Run("bytes", func(b *testing.B) { throughCodec(b, make([]byte, 8000)) })
	b.Run("floats", func(b *testing.B) { throughCodec(b, xs) })
	b.Run("struct", func(b *testing.B) { throughCodec(b, point{X: 1, Y: 2}) })
}

func throughCodec[T any](b *testing.B, v T) {
	b.Helper()
	c, err := newCodec[T]()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		encoded, err := c.encode(v)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.decode(encoded); err != nil {
			b.Fatal(err)
		}
	}
}
