package access

import (
	"maps"
	"net/netip"
	"sync"
	"time"
)

const (
	// loginBurst is how many logins of one address may fail at once, or be in progress: all users of
	// a proxy have one address. One more may fail each second.
	loginBurst = 30
	// maxAddresses bounds the memory. Further addresses share one limit.
	maxAddresses = 10_000
)

// throttle limits how fast an address may guess passwords. An attempt counts as failed
// from its begin, so that parallel attempts are limited too. After too many failures no attempt
// of the address is checked, valid or not. The zero value is ready. It is safe for concurrent use.
type throttle struct {
	mu sync.Mutex
	// failures has, for each address, when its last failure stops to count: one second for each failure.
	failures map[netip.Prefix]time.Time
	swept    time.Time // when failures that do not count any more were removed
}

// begin reports whether an attempt may be checked. If it is not wrong, the caller calls succeed.
func (t *throttle) begin(peer netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := t.key(peer)
	left := max(0, time.Until(t.failures[key])) + time.Second
	if left > loginBurst*time.Second {
		return false
	}
	if t.failures == nil {
		t.failures = map[netip.Prefix]time.Time{}
	}
	t.failures[key] = time.Now().Add(left)
	return true
}

// succeed takes back the failure that begin counted.
func (t *throttle) succeed(peer netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := t.key(peer)
	t.failures[key] = t.failures[key].Add(-time.Second)
	if time.Until(t.failures[key]) <= 0 {
		delete(t.failures, key)
	}
}

// key returns under what the failures of an address are counted: IPv6 clients have a network of
// /64 each.
func (t *throttle) key(peer netip.Addr) netip.Prefix {
	bits := peer.BitLen()
	if peer.Is6() {
		bits = 64
	}
	key, _ := peer.Prefix(bits) // the zero Prefix for the zero Addr
	if _, known := t.failures[key]; known {
		return key
	}
	if len(t.failures) >= maxAddresses && time.Since(t.swept) > time.Second {
		t.swept = time.Now()
		maps.DeleteFunc(t.failures, func(_ netip.Prefix, until time.Time) bool { return time.Until(until) <= 0 })
	}
	if len(t.failures) >= maxAddresses {
		return netip.Prefix{}
	}
	return key
}
