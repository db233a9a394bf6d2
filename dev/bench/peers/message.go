package main

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// bodySize is the size of a message in bytes.
const bodySize = 300

// message is one delayed message. A way carries the body unchanged, or sends the order's id in a
// body of its own.
type message struct {
	OrderID string
	Body    []byte
	Due     time.Time     // in whole milliseconds; it must not be received before
	Delay   time.Duration // how long after the call of publish it is due
}

// idDigits is the width of the number in an order's id.
const idDigits = 8

// runIDLength is the width of the id of a run in an order's id.
const runIDLength = 8

func orderID(run string, number int) string { return fmt.Sprintf("%s-%0*d", run, idDigits, number) }

var idKey = []byte(`"order_id":"`)

// bodyOf returns a JSON object of bodySize bytes with the order's id.
func bodyOf(id string) []byte {
	b := fmt.Appendf(nil, `{%s%s","pad":"`, idKey, id)
	for len(b) < bodySize-2 {
		b = append(b, 'a'+byte(len(b)%26))
	}
	return append(b, '"', '}')
}

// numberIn returns the number of the order in a body, or false if the body belongs to another
// run.
func numberIn(body []byte, run string) (int, bool) {
	_, id, found := bytes.Cut(body, idKey)
	if !found || len(id) < runIDLength+1+idDigits || string(id[:runIDLength]) != run || id[runIDLength] != '-' {
		return 0, false
	}
	n, err := strconv.Atoi(string(id[runIDLength+1 : runIDLength+1+idDigits]))
	return n, err == nil
}
