// Package kubetest contains only tests. They render the Helm chart (../helm) with Helm's library,
// build the kustomization (../k8s) with kustomize's, and decode every object with the types of its
// API. The package is a module of its own, because orderclose needs none of these libraries. Run the
// tests with make kubetest, or with -count=1: Go's cache of test results does not see changes
// outside of the module.
//
// ../kubernetes_test.go compares what the objects say about orderclose with its code: commands,
// variables, paths and metrics.
package kubetest
