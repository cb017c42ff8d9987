// Package manifests checks the manifests of examples/kubernetes against Kubernetes' own types. It is a module of its
// own, so that elasticrun does not depend on Kubernetes. It has nothing but tests.
package manifests
