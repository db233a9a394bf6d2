// Package kubetest contains only tests. They render the Helm chart (../helm) with Helm's library,
// decode every object with the types of its API, and run the program with the arguments of each container. The package is a
// module of its own, because orderclose needs none of these libraries. Run the
// tests with make kubetest, or with -count=1: Go's cache of test results does not see changes
// outside of the module.
//
// ../chart_test.go compares the values and the metrics of the chart with the code.
package kubetest
