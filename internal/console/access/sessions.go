package access

import (
	"crypto/rand"
	"crypto/sha256"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// sessionLifetime is when a session ends after its login, whether it is used or not.
	sessionLifetime = 12 * time.Hour
	// maxSessions bounds the memory. A further login ends the oldest session.
	maxSessions = 1000
	// maxOfToken is how many sessions one token has. A further login with it ends its oldest session,
	// so that no user can end the sessions of others.
	maxOfToken = 50
)

// sessions are the open sessions, by the hash of the cookie's value. The zero value is ready. It
// is safe for concurrent use.
type sessions struct {
	mu   sync.Mutex
	open map[[sha256.Size]byte]session
}

// session is the time after a login with a token.
type session struct {
	token [sha256.Size]byte // the hash of the token
	ends  time.Time
}

// begin starts a session and returns the value of its cookie. A browser cannot choose the value.
func (s *sessions) begin(token [sha256.Size]byte) string {
	value := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[[sha256.Size]byte]session{}
	}
	maps.DeleteFunc(s.open, func(_ [sha256.Size]byte, one session) bool { return time.Now().After(one.ends) })
	s.endOldest(maxOfToken, func(one session) bool { return one.token == token })
	s.endOldest(maxSessions, func(session) bool { return true })
	s.open[sha256.Sum256([]byte(value))] = session{token, time.Now().Add(sessionLifetime)}
	return value
}

// endOldest ends the oldest of some sessions if there are limit of them.
func (s *sessions) endOldest(limit int, of func(session) bool) {
	var oldest [sha256.Size]byte
	n := 0
	for key, one := range s.open {
		if !of(one) {
			continue
		}
		if n++; n == 1 || one.ends.Before(s.open[oldest].ends) {
			oldest = key
		}
	}
	if n >= limit {
		delete(s.open, oldest)
	}
}

// find returns the session of a cookie's value.
func (s *sessions) find(value string) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.open[sha256.Sum256([]byte(value))]
	return one, ok && time.Now().Before(one.ends)
}

// end ends a session.
func (s *sessions) end(value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, sha256.Sum256([]byte(value)))
}

// cookieName returns the name of the session cookie. It has the port that the browser uses:
// browsers share cookies among the ports of a host, such as tunnels to two consoles.
func cookieName(r *http.Request) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil && port != "" {
		return "orderclose-" + port
	}
	return "orderclose"
}

// setCookie gives the browser the cookie of a session, or removes it if the value is "".
func (g *Gate) setCookie(w http.ResponseWriter, r *http.Request, value string) {
	age := int(sessionLifetime.Seconds())
	if value == "" {
		age = -1
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r), Value: value, Path: g.o.Settings.BasePath + "/", MaxAge: age,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: g.encrypted(r),
	})
}
