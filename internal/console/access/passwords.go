package access

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/sync/singleflight"

	"github.com/orderclose/orderclose/internal/config"
)

const (
	// maxCost is the largest cost of bcrypt. A check of cost 10 takes about 50 ms of a core, and
	// each step doubles it.
	maxCost = 14
	// goodFor is for how long a password is accepted without another check of bcrypt.
	goodFor = 5 * time.Minute
	// slotTimeout limits how long a password waits for its check. One password is checked at a
	// time, so that logins cost at most one core.
	slotTimeout = 5 * time.Second
)

// passwords is the method of users with basic auth.
type passwords struct {
	settings config.Console
	file     *file[map[string]string] // hashes of bcrypt by name
	throttle throttle
	logger   *slog.Logger
	key      [32]byte // of the sums below
	slot     chan struct{}
	checks   singleflight.Group // by peer and sum: the requests of one browser share a check

	mu   sync.Mutex
	good map[string]goodPassword // by name; only names of the file
}

// goodPassword is a password that bcrypt accepted.
type goodPassword struct {
	sum   string // HMAC of name and password
	hash  string // the line of the file that it fits
	until time.Time
}

func newPasswords(s config.Console, logger *slog.Logger) (*passwords, error) {
	file, err := openFile(config.EnvConsolePasswords, s.PasswordsFile, logger, parsePasswords)
	p := &passwords{settings: s, file: file, logger: logger, slot: make(chan struct{}, 1), good: map[string]goodPassword{}}
	_, _ = rand.Read(p.key[:]) // never fails
	return p, err
}

var (
	bcryptHash = regexp.MustCompile(`^\$2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{53}$`)

	errPasswordLine = errors.New("the line is not: name:hash, with a hash of bcrypt; htpasswd -B -C 10 FILE NAME writes it")
	errPasswordName = errors.New("the name is empty, has more than 200 bytes, or letters that cannot be printed")
	errPasswordCost = errors.New("bcrypt does not know the cost, or it is larger than 14 and a check takes seconds; htpasswd -B -C 10 writes another one")
	errPasswordSame = errors.New("the name is that of an earlier line; remove one of the lines")
)

// parsePasswords reads a file of htpasswd -B.
func parsePasswords(text string) (map[string]string, error) {
	hashes := map[string]string{}
	err := parseLines(text, func(line string) error {
		name, hash, _ := strings.Cut(line, ":")
		if !bcryptHash.MatchString(hash) {
			return errPasswordLine
		}
		cost, err := bcrypt.Cost([]byte(hash))
		_, seen := hashes[name]
		switch {
		case !validName(name):
			return errPasswordName
		case err != nil || cost > maxCost:
			return errPasswordCost
		case seen:
			return errPasswordSame
		}
		hashes[name] = hash
		return nil
	})
	if err != nil {
		return nil, err
	}
	return hashes, nil
}

func (p *passwords) identify(r *http.Request, peer netip.Addr) (user, *Refusal) {
	name, password, ok := r.BasicAuth()
	if !ok {
		return user{}, refused(NotSignedIn)
	}
	mac := hmac.New(sha256.New, p.key[:])
	fmt.Fprintf(mac, "%d %s%s", len(name), name, password)
	sum := string(mac.Sum(nil))
	answer, _, _ := p.checks.Do(peer.String()+sum, func() (any, error) { return p.check(name, password, sum, peer), nil })
	if refusal := answer.(Reason); refusal != "" {
		return user{}, refused(refusal)
	}
	return user{name: name, role: roleOf(p.settings, name)}, nil
}

// check returns why the password is not accepted; "": it is.
func (p *passwords) check(name, password, sum string, peer netip.Addr) Reason {
	if !p.throttle.begin(peer) { // also for passwords that are known: each check is a guess
		return TooMany
	}
	hashes := p.file.get()
	hash, known := hashes[name]
	if p.isGood(name, sum, hash) {
		p.throttle.succeed(peer)
		return ""
	}
	if !known { // takes as long as for a known name, so that names cannot be probed
		hash = slices.Collect(maps.Values(hashes))[0]
	}
	select {
	case p.slot <- struct{}{}:
		defer func() { <-p.slot }()
	case <-time.After(slotTimeout):
		p.throttle.succeed(peer)
		return Busy
	}
	if bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) != nil || !known {
		// The name is not logged: it may be a misplaced password.
		p.logger.Warn("console login failed", "address", peer, "reason", "wrong user or password")
		return WrongLogin
	}
	p.throttle.succeed(peer)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.good[name] = goodPassword{sum, hash, time.Now().Add(goodFor)}
	return ""
}

func (p *passwords) isGood(name, sum, hash string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	good := p.good[name]
	return good.hash == hash && time.Now().Before(good.until) && hmac.Equal([]byte(good.sum), []byte(sum))
}
