package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"

	"github.com/orderclose/orderclose/internal/config"
)

// minToken is the shortest token, in bytes. The file has hashes without salt, and the login form
// names no user: only a token that nobody can guess protects the console.
const minToken = 20

// holder is a line of the file of tokens.
type holder struct {
	name  string
	role  Role
	token [sha256.Size]byte // the hash of the token
}

// tokens is the method of users who sign in with a token, and of programs that send it as a
// bearer token.
type tokens struct {
	file     *file[[]holder]
	throttle throttle
	sessions sessions
	logger   *slog.Logger
}

func newTokens(s config.Console, logger *slog.Logger) (*tokens, error) {
	file, err := openFile(config.EnvConsoleTokens, s.TokensFile, logger, parseTokens)
	return &tokens{file: file, logger: logger}, err
}

var (
	errTokenLine = errors.New("the line is not: name role sha256:HASH, with 64 hexadecimal digits; printf %s TOKEN | sha256sum prints them")
	errTokenName = errors.New("the name has more than 200 bytes, or letters that cannot be printed")
	errTokenRole = errors.New("the role is neither viewer nor operator")
	errTokenSame = errors.New("the token is that of an earlier line; give each user another one")
)

// parseTokens reads lines such as "ann operator sha256:9f86d0…".
func parseTokens(text string) ([]holder, error) {
	var all []holder
	seen := map[[sha256.Size]byte]bool{}
	err := parseLines(text, func(line string) error {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return errTokenLine
		}
		one := holder{name: fields[0], role: Role(fields[1])}
		digits, ok := strings.CutPrefix(fields[2], "sha256:")
		hash, err := hex.DecodeString(digits)
		switch copy(one.token[:], hash); {
		case !ok || err != nil || len(hash) != sha256.Size:
			return errTokenLine
		case !validName(one.name):
			return errTokenName
		case one.role != Viewer && one.role != Operator:
			return errTokenRole
		case seen[one.token]:
			return errTokenSame
		}
		seen[one.token] = true
		all = append(all, one)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// identify finds the user by a bearer token, or else by the session.
func (t *tokens) identify(r *http.Request, peer netip.Addr) (user, *Refusal) {
	if scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		one, refusal := t.check(strings.TrimSpace(token), peer)
		return user{name: one.name, role: one.role}, refusal
	}
	if u, ok := t.signedIn(r); ok {
		return u, nil
	}
	return user{}, refused(NotSignedIn)
}

// signedIn returns the user of the session. The session ends when the token leaves the file; a
// changed role holds at once.
func (t *tokens) signedIn(r *http.Request) (user, bool) {
	for _, cookie := range r.CookiesNamed(cookieName(r)) {
		s, ok := t.sessions.find(cookie.Value)
		if !ok {
			continue
		}
		if one, ok := t.find(s.token); ok {
			return user{one.name, one.role, cookie.Value}, true
		}
	}
	return user{}, false
}

// check returns whose token it is.
func (t *tokens) check(token string, peer netip.Addr) (holder, *Refusal) {
	if !t.throttle.begin(peer) {
		return holder{}, refused(TooMany)
	}
	reason := "unknown token"
	if len(token) < minToken {
		reason = "the token has fewer than 20 characters, which is never valid"
	} else if one, ok := t.find(sha256.Sum256([]byte(token))); ok {
		t.throttle.succeed(peer)
		return one, nil
	}
	t.logger.Warn("console login failed", "address", peer, "reason", reason)
	return holder{}, refused(WrongLogin)
}

// find compares a hash with those of the file, in a time that does not depend on their bytes.
func (t *tokens) find(token [sha256.Size]byte) (found holder, ok bool) {
	for _, one := range t.file.get() {
		if subtle.ConstantTimeCompare(one.token[:], token[:]) == 1 {
			found, ok = one, true
		}
	}
	return found, ok
}
