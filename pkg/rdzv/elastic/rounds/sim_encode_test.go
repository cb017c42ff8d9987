package rounds

import (
	"encoding/json"

	"github.com/elasticrun/elasticrun/pkg/rdzv"
)

// encoded returns v, for some seeds after encoding and decoding it.
func (w *world) encoded(v any) any {
	if !w.cfg.encode {
		return v
	}
	b, err := EncodeValue(v)
	if err != nil {
		panic(err)
	}
	switch v.(type) {
	case Report:
		return decoded[Report](b)
	case Answer:
		return decoded[Answer](b)
	case Record:
		var r Record
		if err := DecodeRecord(b, &r); err != nil {
			panic(err)
		}
		return r
	case Job:
		return decoded[Job](b)
	case rdzv.Preemption:
		return decoded[rdzv.Preemption](b)
	case rdzv.Outcome:
		return decoded[rdzv.Outcome](b)
	default:
		return v
	}
}

func decoded[T any](b []byte) T {
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		panic(err)
	}
	return v
}

func mustEncode[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
