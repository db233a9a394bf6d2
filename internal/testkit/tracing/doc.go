// Package tracing contains only tests. They run the pipeline on embedded servers, and export its spans to the real collector of OpenTelemetry, in this
// process. The package is a module of its own, because orderclose needs no collector.
package tracing
