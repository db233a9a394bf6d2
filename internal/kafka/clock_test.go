package kafka

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestOffsetOf_IsNeverAheadOfTheBroker, and behind it by no more than the round
// trip and the millisecond that the broker's answer is cut by.
func TestOffsetOf_IsNeverAheadOfTheBroker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		truth := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(t, "offset"))
		sent := time.Unix(1_700_000_000, rapid.Int64Range(0, 1e9).Draw(t, "sent"))
		there := time.Duration(rapid.Int64Range(0, int64(probeSlow)).Draw(t, "there"))
		back := time.Duration(rapid.Int64Range(0, int64(probeSlow)-int64(there)).Draw(t, "back"))
		at := sent.Add(there + truth).Truncate(time.Millisecond)
		got := offsetOf(sent, sent.Add(there+back), at)
		switch {
		case got == 0 && truth.Abs() <= there+back+time.Millisecond:
		case got > truth:
			t.Fatalf("%v, and it is %v", got, truth)
		case got < truth-there-back-time.Millisecond:
			t.Fatalf("%v, and it is %v, with a round trip of %v", got, truth, there+back)
		}
	})
}
