package main

import (
	"bytes"
	"testing"
	"time"
)

func TestTracker_CountsEarlyLostAndDuplicates(t *testing.T) {
	due := time.UnixMilli(1_000)
	tr := newTracker(5)
	for i := range 5 {
		tr.publish(i, due)
		if i != 4 {
			tr.accept(i)
		}
	}
	tr.refuse() // the last
	tr.receive(0, due.Add(-1).UnixNano())
	tr.receive(1, due.UnixNano())
	tr.receive(1, due.Add(time.Second).UnixNano())
	tr.receive(2, due.Add(2*time.Second).UnixNano())
	tr.receive(-1, due.UnixNano())
	if tr.complete() {
		t.Error("complete without the fourth message")
	}
	o := tr.outcome()
	if o.early != 1 || o.lost != 1 || o.duplicates != 1 || len(o.late) != 3 || o.late[2] != 2*time.Second || tr.foreign.Load() != 1 {
		t.Errorf("%+v, %d foreign", o, tr.foreign.Load())
	}
	if gap := o.longestGap(due.Add(500 * time.Millisecond)); gap != 1500*time.Millisecond {
		t.Errorf("the longest gap is %v", gap)
	}
	tr.receive(3, due.UnixNano())
	if !tr.complete() || !tr.lastDue().Equal(due) {
		t.Errorf("complete %v, last due %v", tr.complete(), tr.lastDue())
	}
}

func TestBody_HasTheNumberAlsoInsideOtherJSON(t *testing.T) {
	body := bodyOf(orderID("0123abcd", 77))
	if len(body) != bodySize {
		t.Errorf("%d bytes", len(body))
	}
	wrapped := append([]byte(`{"created_at":"now",`), body[1:]...)
	for _, b := range [][]byte{body, wrapped} {
		if n, ok := numberIn(b, "0123abcd"); n != 77 || !ok {
			t.Errorf("number %d, %v in %s", n, ok, b)
		}
	}
	for _, b := range [][]byte{bodyOf(orderID("ffffffff", 77)), []byte(`{"order_id":"0123abcd-`), nil} {
		if n, ok := numberIn(b, "0123abcd"); ok {
			t.Errorf("number %d in %s", n, b)
		}
	}
}

// A worker that is killed may leave a part of a receipt.
func TestReceipts_ArriveWithoutAPart(t *testing.T) {
	var pipe bytes.Buffer
	r := &receipts{run: "0123abcd", out: &pipe}
	at := time.Unix(5, 7)
	r.add(bodyOf(orderID("0123abcd", 3)), at)
	r.add([]byte("foreign"), at)
	if pipe.Len() > 0 {
		t.Error("receipts are written before flush")
	}
	if err := r.flush(); err != nil {
		t.Fatal(err)
	}
	pipe.WriteString("a part")
	var numbers []int
	err := readReceipts(&pipe, func(number int, got int64) {
		numbers = append(numbers, number)
		if got != at.UnixNano() {
			t.Errorf("received at %d", got)
		}
	})
	if err != nil || len(numbers) != 2 || numbers[0] != 3 || numbers[1] != -1 {
		t.Errorf("numbers %v, %v", numbers, err)
	}
}
