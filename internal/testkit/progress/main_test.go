package main

import (
	"bytes"
	"maps"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/process"
)

func TestProgress_SaysWhatEndsAndWhatRuns(t *testing.T) {
	var out bytes.Buffer
	p := &printer{out: &out}
	began := time.Now()
	for _, line := range []string{
		`{"Action":"start","Package":"a"}`, `{"Action":"start","Package":"b"}`,
		`{"Action":"output","Package":"b","Test":"TestOne","Output":"=== RUN TestOne\n"}`,
		`{"Action":"output","Package":"b","Test":"TestOne","Output":"one_test.go:7: wrong\n"}`,
		`{"Action":"fail","Package":"b","Test":"TestOne","Elapsed":1}`,
		`{"Action":"output","Package":"b","Test":"TestTwo","Output":"fine\n"}`,
		`{"Action":"pass","Package":"b","Test":"TestTwo","Elapsed":1}`,
		`{"Action":"output","Package":"b","Output":"FAIL\n"}`,
		`{"Action":"fail","Package":"b","Elapsed":2.54}`,
		`{"Action":"skip","Package":"no-tests","Elapsed":0}`,
		`{"ImportPath":"c","Action":"build-output","Output":"c.go:1: syntax error\n"}`,
		`not an event`,
	} {
		p.handle([]byte(line+"\n"), began)
	}
	p.report(began.Add(90 * time.Second))
	p.handle([]byte(`{"Action":"output","Package":"a","Output":"ok  \ta\t1s\n"}`), began)
	p.handle([]byte(`{"Action":"pass","Package":"a","Elapsed":91}`), began)
	want := "=== RUN TestOne\none_test.go:7: wrong\nFAIL\nFAIL  b  2.5s\nc.go:1: syntax error\nnot an event\n... a: 0 tests ended in 1m30s\nok    a  91.0s\n"
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", &out, want)
	}
}

// Two servers, one of which has a child process.
func TestCosts_SumAServerAndItsChildren(t *testing.T) {
	got := trees(map[int]process.Stat{
		1: {Parent: 99, CPU: time.Second, Waited: 2 * time.Second}, 2: {Parent: 1, CPU: 4 * time.Second}, 3: {Parent: 1, CPU: 8 * time.Second},
	}, map[int]string{1: "postgres", 2: "postgres", 3: "redis-server"})
	if want := map[int]time.Duration{1: 7 * time.Second, 3: 8 * time.Second}; !maps.Equal(got, want) {
		t.Errorf("servers used %v, want %v", got, want)
	}
}
