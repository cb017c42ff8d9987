// Package manifests has nothing but tests: the examples for Kubernetes are what they say, by Kubernetes' own types. It is a module of its
// own, so that the product does not depend on those.
package manifests
