// Package consoletest contains only tests. They open the web console in a real browser, Debian's
// chromium, in front of a whole pipeline: orderclose-dev serve, on embedded servers. The package is a
// module of its own, because orderclose needs no library that drives a browser. Run the tests with
// make test-console, or with -count=1 after deploy/native/install.sh chromium axe: Go's cache of
// test results does not see changes outside of the module.
//
// A check is a function that opens tabs of a console and fails if something is wrong
// (pages_test.go, actions_test.go, hostile_test.go). console_test.go runs all checks on serve
// (serve_test.go).
package consoletest
