package access

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/orderclose/orderclose/internal/config"
)

// slotTimeout limits how long a password waits for its check. One password is checked at a
// time, so that logins cost at most one core.
const slotTimeout = 5 * time.Second

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
	name, password, ok := r.BasicAuth()
	if !ok {
		return Identity{}, notSignedIn
	}
	if !p.throttle.begin(peer) { // also for passwords that are known: each check is a guess
		return Identity{}, tooMany
	}
	refusal := p.check(name, password)
	if refusal == wrongLogin { // the name is not logged: it may be a misplaced password
		p.logger.Warn("console login failed", "address", peer, "reason", "wrong user or password")
	} else {
		p.throttle.succeed(peer)
	}
	return identityOf(p.settings, name), refusal
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
	hash, known := file.users[name]
	if !known { // takes as long as for a known name, so that names cannot be probed
		hash = slices.Collect(maps.Values(file.users))[0]
	}
	if bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) != nil || !known {
		return wrongLogin
	}
	file.accepted.Store(name, sum)
	return nil
}
