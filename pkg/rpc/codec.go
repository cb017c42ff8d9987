package rpc

import (
	"encoding"
	"fmt"
	"math"
	"reflect"

	"github.com/fxamacker/cbor/v2"
)

// codec makes bytes of values of one type, and back. Which of the three encodings it is follows from the type alone, so that
// two workers with the same type always agree.
type codec[T any] struct {
	encode func(T) ([]byte, error)
	decode func([]byte) (T, error)
}

// newCodec fails for types that cannot be sent at all.
func newCodec[T any]() (codec[T], error) {
	t := reflect.TypeFor[T]()
	switch kind := t.Kind(); {
	case kind == reflect.Chan, kind == reflect.Func, kind == reflect.UnsafePointer:
		return codec[T]{}, fmt.Errorf("%w: %s cannot be sent", ErrEncoding, t)
	case kind == reflect.Interface && t.NumMethod() > 0:
		return codec[T]{}, fmt.Errorf("%w: %s is an interface, and what is behind it cannot be known to who receives it; "+
			"name a concrete type", ErrEncoding, t)
	}
	var raw any = func(b []byte) ([]byte, error) { return b, nil }
	if as, ok := raw.(func(T) ([]byte, error)); ok {
		return codec[T]{encode: as, decode: raw.(func([]byte) (T, error))}, nil
	}
	if decode := binaryDecoder[T](); decode != nil {
		if encode := binaryEncoder[T](); encode != nil {
			return codec[T]{encode: encode, decode: decode}, nil
		}
	}
	return cborCodec[T]()
}

// binaryEncoder is nil for a type that does not encode itself.
func binaryEncoder[T any]() func(T) ([]byte, error) {
	methods := func(v *T) any { return v } // the methods of *T, of which those of T are part
	pointer := reflect.TypeFor[T]().Kind() == reflect.Pointer
	if pointer {
		methods = func(v *T) any { return *v }
	}
	check := func(v T) error {
		if pointer && reflect.ValueOf(v).IsNil() {
			return fmt.Errorf("it is a nil %T, which has no bytes", v)
		}
		return nil
	}
	switch methods(new(T)).(type) {
	case encoding.BinaryAppender:
		return func(v T) ([]byte, error) {
			if err := check(v); err != nil {
				return nil, err
			}
			return methods(&v).(encoding.BinaryAppender).AppendBinary(nil)
		}
	case encoding.BinaryMarshaler:
		return func(v T) ([]byte, error) {
			if err := check(v); err != nil {
				return nil, err
			}
			return methods(&v).(encoding.BinaryMarshaler).MarshalBinary()
		}
	}
	return nil
}

// binaryDecoder is nil for a type that does not decode itself.
func binaryDecoder[T any]() func([]byte) (T, error) {
	if _, ok := any(new(T)).(encoding.BinaryUnmarshaler); ok {
		return func(b []byte) (T, error) {
			var v T
			err := any(&v).(encoding.BinaryUnmarshaler).UnmarshalBinary(b)
			return v, err
		}
	}
	var value T
	if _, ok := any(value).(encoding.BinaryUnmarshaler); !ok || reflect.TypeFor[T]().Kind() != reflect.Pointer {
		return nil
	}
	elem := reflect.TypeFor[T]().Elem()
	return func(b []byte) (T, error) {
		v := reflect.New(elem).Interface()
		err := v.(encoding.BinaryUnmarshaler).UnmarshalBinary(b)
		return v.(T), err
	}
}

// cborCodec is for all other types. Go values come back as they were: floating-point numbers keep their width and
// all their bits, a NaN's too, times their zone and their nanoseconds, integers of any size their value, strings all their bytes. A
// map's keys are sorted, so that equal values are equal bytes.
func cborCodec[T any]() (codec[T], error) {
	enc, err := cbor.EncOptions{
		Sort:          cbor.SortCoreDeterministic,
		BigIntConvert: cbor.BigIntConvertShortest,
		NaNConvert:    cbor.NaNConvertNone,
		InfConvert:    cbor.InfConvertNone,
		Time:          cbor.TimeRFC3339Nano,
		TimeTag:       cbor.EncTagRequired,
		ByteArray:     cbor.ByteArrayToByteSlice,
		IndefLength:   cbor.IndefLengthForbidden,
		TextMarshaler: cbor.TextMarshalerTextString,
	}.EncMode()
	if err != nil {
		return codec[T]{}, err
	}
	// What bounds a message is the limit of its bytes. The decoder makes sure that all elements are there before it sets memory
	// aside for them.
	dec, err := cbor.DecOptions{
		MaxArrayElements:  math.MaxInt32,
		MaxMapPairs:       math.MaxInt32,
		MaxNestedLevels:   math.MaxUint16,
		IndefLength:       cbor.IndefLengthForbidden,
		UTF8:              cbor.UTF8DecodeInvalid,
		FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
		TextUnmarshaler:   cbor.TextUnmarshalerTextString,
	}.DecMode()
	if err != nil {
		return codec[T]{}, err
	}
	return codec[T]{
		encode: func(v T) ([]byte, error) { return enc.Marshal(v) },
		decode: func(b []byte) (T, error) {
			var v T
			err := dec.Unmarshal(b, &v)
			return v, err
		},
	}, nil
}
