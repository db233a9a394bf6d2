package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/internal/wire"
)

// recordFrame is the number of bytes of a record in a batch beside its body.
const recordFrame = 5

// message returns the record of the order with that number and due time, of about
// recordSize bytes in a batch.
func message(number int, due time.Time) (wire.Message, error) {
	order := orderclose.Order{
		ID: idOf(number), Category: "virtual", CreatedAt: due.Add(-5 * time.Minute), Due: due,
		Attributes: map[string]any{"note": ""},
	}
	m, err := wire.Record{Order: order, Release: due}.Encode()
	if err != nil {
		return m, err
	}
	if missing := recordSize - recordFrame - len(m.Raw().Body); missing > 0 {
		order.Attributes["note"] = noise(number, missing)
		return wire.Record{Order: order, Release: due}.Encode()
	}
	return m, nil
}

const idPrefix = "ORD-20260301-"

func idOf(number int) string { return fmt.Sprintf("%s%09d", idPrefix, number) }

// numberOf reads the order's number from the key of its record.
func numberOf(key []byte) (int, error) {
	digits, ok := strings.CutPrefix(string(key), idPrefix)
	if !ok {
		return 0, fmt.Errorf("key %q is none of ours", key)
	}
	return strconv.Atoi(digits)
}

// text is the source of notes: letters without order, so that batches compress about
// as well as the JSON around the notes allows.
var text = func() string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return string(b)
}()

// noise returns n letters of text, different for each number.
func noise(number, n int) string {
	at := number * 7919 % (len(text) - n)
	return text[at : at+n]
}
