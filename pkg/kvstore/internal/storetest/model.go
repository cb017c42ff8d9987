package storetest

import (
	"math/big"
	"slices"

	"github.com/elasticrun/elasticrun/internal/lazyregexp"
)

// model computes the outcomes of calls with a map of strings. It shares no code with the stores.
type model map[Text]Text

// leadingNumber matches what C's stoll reads.
var leadingNumber = lazyregexp.New(`^[ \t\n\v\f\r]*([+-]?[0-9]+)`)

// missing returns the values of keys, or true if one is missing.
func (m model) missing(keys []Text) (values []Text, some bool) {
	for _, key := range keys {
		value, ok := m[key]
		if !ok {
			return nil, true
		}
		values = append(values, value)
	}
	return values, false
}

// do carries out c. A call that would block times out.
func (m model) do(c Call) Outcome {
	values, missing := m.missing(c.Keys)
	switch c.Op {
	case "set", "multi_set":
		for i, key := range c.Keys {
			m[key] = c.Values[i]
		}
	case "append":
		m[c.Keys[0]] += c.Values[0]
	case "get", "multi_get":
		if missing {
			return Outcome{Error: "timeout"}
		}
		return Outcome{Values: values}
	case "wait":
		if missing {
			return Outcome{Error: "timeout"}
		}
	case "check":
		return Outcome{Number: number(!missing)}
	case "num_keys":
		return Outcome{Number: int64(len(m))}
	case "delete_key":
		delete(m, c.Keys[0])
		return Outcome{Number: number(!missing)}
	case "compare_set":
		held, expected, desired := m[c.Keys[0]], c.Values[0], c.Values[1]
		switch {
		case held == expected: // or missing, and expected is empty
			m[c.Keys[0]] = desired
			return Outcome{Values: []Text{desired}}
		case missing:
			return Outcome{Values: []Text{expected}}
		}
		return Outcome{Values: []Text{held}}
	case "add":
		return m.add(c.Keys[0], c.Delta)
	}
	return Outcome{}
}

func (m model) add(key Text, delta int64) Outcome {
	sum := new(big.Int)
	if held, ok := m[key]; ok {
		found := leadingNumber().FindStringSubmatch(string(held))
		if found != nil {
			sum.SetString(found[1], 10)
		}
		if found == nil || !sum.IsInt64() {
			return Outcome{Error: "refused"}
		}
	}
	sum.Add(sum, big.NewInt(delta))
	// Wrap around at 64 bits: reduce to [0, 2^64), where 2^63 and above stand for negative numbers.
	around := new(big.Int).Lsh(big.NewInt(1), 64)
	if sum.Mod(sum, around); !sum.IsInt64() {
		sum.Sub(sum, around)
	}
	m[key] = Text(sum.String())
	return Outcome{Number: sum.Int64()}
}

// same reports whether two outcomes are equal. Nil and empty Values are equal.
func same(a, b Outcome) bool {
	return slices.Equal(a.Values, b.Values) && a.Number == b.Number && a.Error == b.Error
}

func number(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
