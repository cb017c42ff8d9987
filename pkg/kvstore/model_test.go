package kvstore

import (
	"math/big"
	"regexp"
	"slices"
)

// model says what a store's calls give: a map of strings, written without a look at core.go.
type model map[text]text

// leadingNumber is what C's stoll reads of a text.
var leadingNumber = regexp.MustCompile(`^[ \t\n\v\f\r]*([+-]?[0-9]+)`)

// missing returns the values of keys, if all are there.
func (m model) missing(keys []text) (values []text, some bool) {
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
func (m model) do(c call) outcome {
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
			return outcome{Error: "timeout"}
		}
		return outcome{Values: values}
	case "wait":
		if missing {
			return outcome{Error: "timeout"}
		}
	case "check":
		return outcome{Number: number(!missing)}
	case "num_keys":
		return outcome{Number: int64(len(m))}
	case "delete_key":
		delete(m, c.Keys[0])
		return outcome{Number: number(!missing)}
	case "compare_set":
		held, expected, desired := m[c.Keys[0]], c.Values[0], c.Values[1]
		switch {
		case held == expected: // or missing, and expected is empty
			m[c.Keys[0]] = desired
			return outcome{Values: []text{desired}}
		case missing:
			return outcome{Values: []text{expected}}
		}
		return outcome{Values: []text{held}}
	case "add":
		return m.add(c.Keys[0], c.Delta)
	}
	return outcome{}
}

func (m model) add(key text, delta int64) outcome {
	sum := new(big.Int)
	if held, ok := m[key]; ok {
		found := leadingNumber.FindStringSubmatch(string(held))
		if found != nil {
			sum.SetString(found[1], 10)
		}
		if found == nil || !sum.IsInt64() {
			return outcome{Error: "refused"}
		}
	}
	sum.Add(sum, big.NewInt(delta))
	// Around at 64 bits: to [0, 2^64), and what is 2^63 or more stands for less than 0.
	around := new(big.Int).Lsh(big.NewInt(1), 64)
	if sum.Mod(sum, around); !sum.IsInt64() {
		sum.Sub(sum, around)
	}
	m[key] = text(sum.String())
	return outcome{Number: sum.Int64()}
}

// same tells whether two outcomes are equal; no values are equal to an empty list of them.
func same(a, b outcome) bool {
	return slices.Equal(a.Values, b.Values) && a.Number == b.Number && a.Error == b.Error
}

func number(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}
