package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestConsolePage_IsNotCompleteWithoutAnAnswer(t *testing.T) {
	p := consolePage{has: []string{"<svg", "<table"}}
	for body, want := range map[string]string{
		"<svg><table>": "",
		"<svg>":        "<table",
		`<svg><table><p class="away" role="status">?`: "an answer of a server",
	} {
		if got := p.missing(body); got != want {
			t.Errorf("missing in %s: %q, want %q", body, got, want)
		}
	}
}

// A page that changes must not leave the benchmark waiting for what no page has.
func TestConsolePages_HaveWhatTheBenchmarkWaitsFor(t *testing.T) {
	var all strings.Builder
	names, _ := filepath.Glob("../internal/console/templates/*.html")
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	for _, p := range consolePages("order") {
		for _, part := range append(p.has, `class="away" role="status"`) {
			if part = strings.TrimSuffix(part, `true"`); !strings.Contains(all.String(), part) {
				t.Errorf("no template has %s of page %s", part, p.name)
			}
		}
	}
}

func TestMetadataProxy_CountsRequestsAndBytesOfBothDirections(t *testing.T) {
	p, err := newMetadataProxy(nil)
	if err != nil {
		t.Fatal(err)
	}
	p.add(10, int16(kmsg.Fetch))
	before := p.count()
	for range 2 {
		p.add(100, int16(kmsg.ListOffsets))
		p.add(50, -1) // a response
	}
	if got := p.count().minus(before); got.requests() != 2 || got.String() != "2 requests, 300 bytes: 2 ListOffsets" {
		t.Errorf("counted %v", got)
	}
	if got := before.String(); got != "1 requests, 10 bytes: 1 Fetch" {
		t.Errorf("counted %v before", got)
	}
}
