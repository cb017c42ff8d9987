package config

import "testing"

func TestYAMLProblem(t *testing.T) {
	for message, want := range map[string]string{
		"yaml: unknown anchor 'a' referenced": "is not valid YAML: unknown anchor 'a' referenced",
		"yaml: unmarshal errors:\n  line 1: cannot unmarshal !!str `x` into map[string]interface {}\n  line 2": "line 1: must be keys with values, such as nnodes: 2",
		"yaml: line 3: could not find expected ':'":                                                            "line 3: is not valid YAML: could not find expected ':'",
		"something else": "is not valid YAML: something else",
	} {
		if got := yamlProblem(message); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
