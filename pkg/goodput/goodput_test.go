package goodput

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestGoodput(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		g     Goodput
		share float64
		text  string
	}{
		{"nothing is known", Goodput{}, 0, ""},
		{"all of it", Goodput{Running: 3}, 1, "100.0 % running"},
		{"steps", Goodput{Running: 97, Startup: 3, Steps: true}, 0.97, "97.0 % training"},
		{"lost steps may be missing", Goodput{Running: 97, Idle: 3, Steps: true, LostUnknown: true}, 0.97, "97.0 % running"},
		{"not rounded up", Goodput{Running: 99.96, Lost: 0.04}, 0.9996, "99.9 % running"},
		{"each part counts", Goodput{
			Startup: 1, Running: 1, Lost: 1, Detection: 1, Standstill: 1, Preemption: 1, Idle: 1,
		}, 1. / 7, "14.2 % running"},
	} {
		if got := tt.g.Share(); got < tt.share-1e-9 || got > tt.share+1e-9 {
			t.Errorf("%s: share %v, want %v", tt.name, got, tt.share)
		}
		if got := tt.g.String(); got != tt.text {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.text)
		}
	}
}

func TestDetails(t *testing.T) {
	t.Parallel()
	for want, g := range map[string]Goodput{
		"":                {},
		"100.0 % running": {Running: 2},
		"60.0 % training, 29.9 % lost work, 10.0 % start-up": {Running: 60.05, Startup: 10, Lost: 29.94, Idle: 0.01, Steps: true},
	} {
		if got := g.Details(); got != want {
			t.Errorf("%+v: %q, want %q", g, got, want)
		}
	}
}

// TestPartsAreComplete checks that each number of a Goodput is a part, under its name in JSON, and is rounded.
func TestPartsAreComplete(t *testing.T) {
	t.Parallel()
	var g Goodput
	v := reflect.ValueOf(&g).Elem()
	numbers := map[string]float64{}
	for field := range v.Type().Fields() {
		if field.Type.Kind() == reflect.Float64 {
			n := 1.00049 * float64(1+len(numbers))
			v.FieldByIndex(field.Index).SetFloat(n)
			numbers[field.Name] = n
		}
	}
	data, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	var named map[string]any
	if err := json.Unmarshal(data, &named); err != nil {
		t.Fatal(err)
	}
	if named["ratio"] != 0.0714 {
		t.Errorf("ratio %v", named["ratio"])
	}
	parts := g.Parts()
	if len(parts) != len(numbers) {
		t.Errorf("%d parts of %d numbers", len(parts), len(numbers))
	}
	for _, p := range parts {
		if named[p.Name] != p.Seconds {
			t.Errorf("%s is %v, in JSON %v", p.Name, p.Seconds, named[p.Name])
		}
	}
	for _, p := range g.Rounded().Parts() {
		if ms := p.Seconds * 1000; ms != float64(int64(ms+0.5)) && ms-float64(int64(ms+0.5)) > 1e-9 {
			t.Errorf("%s: %v is not rounded", p.Name, p.Seconds)
		}
	}
}
