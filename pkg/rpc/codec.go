package rpc

import (
	"encoding"
	"fmt"
	"math"
	"reflect"

	"github.com/fxamacker/cbor/v2"
)

// codec encodes and decodes values of one type. The type alone selects the encoding, so two workers with the same type
// always agree.
type codec[T any] struct {
	encode func(T) ([]byte, error)
	decode func([]byte) (T, error)
}

// newCodec returns an error for a type that cannot be sent.
func newCodec[T any]() (codec[T], error) {
	t := reflect.TypeFor[T]()
	switch kind := t.Kind(); {
	case kind == reflect.Chan, kind == reflect.Func, kind == reflect.UnsafePointer:
		return codec[T]{}, fmt.Errorf("%w: %s cannot be sent", ErrEncoding, t)
	case kind == reflect.Interface && t.NumMethod() > 0:
		return codec[T]{}, fmt.Errorf("%w: %s is an interface, and the receiver cannot know the type of its value; "+
			"use a concrete type", ErrEncoding, t)
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

// binaryEncoder returns nil for a type that does not encode itself.
func binaryEncoder[T any]() func(T) ([]byte, error) {
	methods := func(v *T) any { return v } // the method set of *T includes that of T
	pointer := reflect.TypeFor[T]().Kind() == reflect.Pointer
	if pointer {
		methods = func(v *T) any { return *v }
	}
	check := func(v T) error {
		if pointer && reflect.ValueOf(v).IsNil() {
			return fmt.Errorf("a nil %T cannot be encoded", v)
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

// binaryDecoder returns nil for a type that does not decode itself.
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

// cborCodec returns the codec of all other types. Values keep what Go distinguishes: the width and all bits of
// floating-point numbers (of NaNs too), the UTC offset and nanoseconds of times, the value of integers of any size, and
// all bytes of strings. Map keys are sorted, so equal values have equal bytes.
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
	// The payload limit bounds a message. The decoder checks that all elements are present before it allocates memory
	// for them.
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
