package access

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/orderclose/orderclose/internal/config"
)

// slotTimeout limits how long a password waits for its check. One password is checked at a
// time, so that logins cost at most one core.
const slotTimeout = 5 * time.Second

// maxPassword is how many bytes of a password bcrypt reads. It ignores those behind them.
const maxPassword = 72

// passwords is the method of users with basic auth.
type passwords struct {
	settings config.Console
	file     *webFile
	throttle throttle
	logger   *slog.Logger
	key      [32]byte // of the sums of accepted passwords
	slot     chan struct{}
}

func newPasswords(s config.Console, file *webFile, logger *slog.Logger) *passwords {
	p := &passwords{settings: s, file: file, logger: logger, slot: make(chan struct{}, 1)}
	_, _ = rand.Read(p.key[:]) // never fails
	return p
}

func (p *passwords) identify(r *http.Request, peer netip.Addr) (Identity, *Refusal) {
	encrypted := r.TLS != nil || isProxy(p.settings, peer)
	if name, ok := p.signedIn(r, encrypted); ok { // others who guess passwords do not lock this user out
		return identityOf(p.settings, name), nil
	}
	peer = clientOf(r, p.settings, peer)
	name, password, ok := r.BasicAuth()
	if !ok {
		return Identity{}, notSignedIn
	}
	if !p.throttle.begin(peer) { // also for passwords that are known: each check is a guess //mutant:fast-guesses
		return Identity{}, tooMany
	}
	refusal := p.check(name, password)
	if refusal == wrongLogin { // the name is not logged: it may be a misplaced password
		p.logger.Warn("console login failed", "address", peer, "reason", "wrong user or password")
	} else {
		p.throttle.succeed(peer)
	}
	i := identityOf(p.settings, name)
	if refusal == nil {
		i.session = p.session(name, encrypted)
	}
	return i, refusal
}

// check returns why the password is not accepted; nil: it is. A password that was accepted is not given to
// bcrypt again until the file changes.
func (p *passwords) check(name, password string) *Refusal {
	file := p.file.get()
	mac := hmac.New(sha256.New, p.key[:])
	fmt.Fprintf(mac, "%d %s%s", len(name), name, password)
	sum := [sha256.Size]byte(mac.Sum(nil))
	if known, _ := file.accepted.Load(name); known == sum {
		return nil
	}
	select {
	case p.slot <- struct{}{}:
		defer func() { <-p.slot }()
	case <-time.After(slotTimeout):
		return busy
	}
	if known, _ := file.accepted.Load(name); known == sum { // meanwhile, by another request of the browser
		return nil
	}
	hash, known := file.hashOf(name)
	if bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) != nil || !known || len(password) > maxPassword {
		return wrongLogin
	}
	file.accepted.Store(name, sum)
	return nil
}

// hashOf returns the hash of a user. For an unknown name it returns one of the largest cost, so that its check takes
// no less time than that of a user, and names cannot be probed.
func (c *webConfig) hashOf(name string) (hash string, known bool) {
	if hash, known = c.users[name]; !known {
		cost := func(a, b string) int { return cmp.Compare(a[4:6], b[4:6]) } // $2y$10$…
		hash = slices.MaxFunc(slices.Collect(maps.Values(c.users)), cost)
	}
	return hash, known
}

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
