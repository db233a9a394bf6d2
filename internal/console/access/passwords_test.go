package access

import (
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// bcrypted is the hash of "pass:word" that the C library writes, as htpasswd does.
const bcrypted = "$2y$05$abcdefghijklmnopqrstuuDIEddBSuRWBBEY6g5zv60IAP5bSSfki"

// newTestPasswords returns the method with a file of the users.
func newTestPasswords(t *testing.T, users string) (p *passwords, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "web.yml")
	writeUsers(t, path, users)
	logger := slog.New(slog.DiscardHandler)
	s := config.Console{Listen: config.DefaultConsoleListen, WebConfigFile: path}
	file := must.Get(openWebFile(s, logger))(t)
	return newPasswords(s, file, logger), path
}

func writeUsers(t *testing.T, path, users string) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte("basic_auth_users: {"+users+"}\n"), 0o600))
}

func bcryptOf(t *testing.T, password string) string {
	t.Helper()
	hash := must.Get(bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost))(t)
	return string(hash)
}

// ask sends a request with basic auth, and returns why it is refused.
func ask(p *passwords, name, password string) Reason {
	r := httptest.NewRequest("GET", "/", nil)
	r.SetBasicAuth(name, password)
	if _, refusal := p.identify(r, netip.MustParseAddr("127.0.0.1")); refusal != nil {
		return refusal.Reason
	}
	return ""
}

func TestPasswords_AcceptTheUsersOfTheFile(t *testing.T) {
	p, _ := newTestPasswords(t, "ann: "+bcrypted+", 李: "+bcryptOf(t, "密码"))
	for _, row := range []struct {
		name, password string
		want           Reason
	}{
		{"ann", "pass:word", ""}, {"李", "密码", ""}, {"ann", "pass:word", ""}, {"ann", "pass", "wrong_login"}, {"ann", "", "wrong_login"}, {"", "", "wrong_login"},
		{"Ann", "pass:word", "wrong_login"},
		{"ben", "pass:word", "wrong_login"}, {"李", "pass:word", "wrong_login"}, {"ann", "密码", "wrong_login"}, {"ann\x00pass", ":word", "wrong_login"},
	} {
		expect.Equal(t, ask(p, row.name, row.password), row.want, "%q with %q is refused with", row.name, row.password)
	}
}

func TestPasswords_MoreBytesThanBcryptReadsAreRefused(t *testing.T) {
	longest := strings.Repeat("x", 72)
	p, _ := newTestPasswords(t, "ann: "+bcryptOf(t, longest))
	for password, want := range map[string]Reason{longest: "", longest + "y": "wrong_login", strings.Repeat("x", 73): "wrong_login"} {
		if got := ask(p, "ann", password); got != want {
			t.Errorf("%d bytes are refused with %q, want %q", len(password), got, want)
		}
	}
}

func TestPasswords_AnUnknownNameCostsAsMuchAsTheCostliestUser(t *testing.T) {
	boss := string(must.Get(bcrypt.GenerateFromPassword([]byte("hunter2"), bcrypt.MinCost+2))(t))
	p, _ := newTestPasswords(t, "ann: "+bcryptOf(t, "a")+", ben: "+bcryptOf(t, "b")+", boss: "+boss+", cid: "+bcryptOf(t, "c")+", dan: "+bcryptOf(t, "d"))
	for range 20 { // the order of a map is random
		if hash, known := p.file.get().hashOf("eve"); hash != boss || known {
			t.Fatalf("hash %q, known %v; want that of boss", hash, known)
		}
	}
}

// A check of bcrypt costs 50 ms: the requests of an open page must not.
func TestPasswords_AreCheckedOnceUntilTheFileChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, path := newTestPasswords(t, "ann: "+bcryptOf(t, "hunter2"))
		busy := func() { p.slot <- struct{}{} } // no password can be checked by bcrypt
		free := func() { <-p.slot }
		must.That(t, ask(p, "ann", "hunter2") == "", "the password is refused")
		busy()
		time.Sleep(time.Hour)
		expect.Equal(t, ask(p, "ann", "hunter2"), "", "the password is checked again")
		expect.Equal(t, ask(p, "ann", "hunter3"), "busy", "another password is not checked")
		free()
		writeUsers(t, path, "ann: "+bcryptOf(t, "hunter3"))
		time.Sleep(2 * rereadInterval)
		expect.Equal(t, ask(p, "ann", "hunter2"), "wrong_login", "the old password is accepted after a change of the file")
		expect.Equal(t, ask(p, "ann", "hunter3"), "", "the new password is refused with")
	})
}

// The requests of a page come together: one of them is checked by bcrypt.
func TestPasswords_ParallelRequestsShareACheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTestPasswords(t, "ann: "+bcryptOf(t, "hunter2"))
		p.slot <- struct{}{}
		var wait sync.WaitGroup
		answers := make([]Reason, loginBurst)
		for i := range answers {
			wait.Go(func() { answers[i] = ask(p, "ann", "hunter2") })
		}
		synctest.Wait()
		<-p.slot
		wait.Wait()
		for i, got := range answers {
			expect.Equal(t, got, "", "request %d is refused with", i)
		}
		file := p.file.get()
		file.users = map[string]string{"ann": "$2y$99$" + strings.Repeat("x", 53)} // bcrypt refuses each password
		expect.Equal(t, ask(p, "ann", "hunter2"), "", "after %d requests the password is checked again", len(answers))
	})
}

// Requests with other names or passwords get their own answers.
func TestPasswords_OtherRequestsShareNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTestPasswords(t, "ann: "+bcryptOf(t, "hunter2"))
		p.slot <- struct{}{}
		var wait sync.WaitGroup
		var right Reason
		wait.Go(func() { right = ask(p, "ann", "hunter2") })
		synctest.Wait() // its check goes first
		wrong := map[string]*Reason{}
		for _, name := range []string{"ann", "annh", "an", ""} {
			answer := new(Reason)
			wrong[name] = answer
			password := strings.TrimPrefix("annhunter2", name)
			if name == "ann" {
				password = "hunter3"
			}
			wait.Go(func() { *answer = ask(p, name, password) })
		}
		synctest.Wait()
		<-p.slot
		wait.Wait()
		for name, got := range wrong {
			expect.Equal(t, *got, "wrong_login", "%q is refused with", name)
		}
		expect.Equal(t, right, "", "the valid password is refused with")
	})
}

// Whatever the load, one password is checked at a time, and none waits longer than 5 s.
func TestPasswords_ChecksAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTestPasswords(t, "ann: "+bcryptOf(t, "hunter2"))
		p.slot <- struct{}{}
		began := time.Now()
		if got := ask(p, "ann", "hunter2"); got != "busy" || time.Since(began) != slotTimeout {
			t.Errorf("answers %q after %v", got, time.Since(began))
		}
		var wait sync.WaitGroup
		for i := range loginBurst {
			wait.Go(func() { ask(p, "ann", strings.Repeat("x", i)) })
		}
		wait.Wait()
		<-p.slot
		for i := range loginBurst { // a busy console does not count as guesses
			if got := ask(p, "ann", strings.Repeat("x", i)); got != "wrong_login" {
				t.Fatalf("guess %d is refused with %s", i, got)
			}
		}
	})
}

// The throttle comes before bcrypt: too many guesses cost no time of the slot.
func TestPasswords_AGuessThatMustWaitIsNotChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTestPasswords(t, "ann: "+bcryptOf(t, "hunter2"))
		for i := range loginBurst {
			ask(p, "ann", strings.Repeat("x", i))
		}
		p.slot <- struct{}{}
		began := time.Now()
		got := ask(p, "ann", "hunter2")
		expect.That(t, got == "too_many_logins" && time.Since(began) == 0, "answers %q after %v", got, time.Since(began))
	})
}

// Guesses from the address of a user, such as that of a proxy, do not lock out who is signed in.
func TestPasswords_ASessionNeedsNoPasswordAndCannotBeForged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, path := newTestPasswords(t, "ann: "+bcryptOf(t, "secret")+", bob: "+bcryptOf(t, "secret"))
		peer := netip.MustParseAddr("10.0.0.7")
		login := httptest.NewRequest("GET", "/", nil)
		login.SetBasicAuth("ann", "secret")
		i, refusal := p.identify(login, peer)
		must.That(t, refusal == nil && i.session != nil, "no session: %v", refusal)
		for range loginBurst + 1 {
			ask := httptest.NewRequest("GET", "/", nil)
			ask.SetBasicAuth("ann", "guess")
			_, refusal = p.identify(ask, peer)
		}
		must.That(t, refusal == tooMany, "guesses are not limited: %v", refusal)
		with := func(value string) string {
			r := httptest.NewRequest("GET", "/", nil)
			c := *i.session
			c.Value = value
			r.AddCookie(&c)
			name, ok := p.signedIn(r, false)
			if !ok {
				return ""
			}
			return name
		}
		value, signature, _ := strings.Cut(i.session.Value, ".")
		bob, _, _ := strings.Cut(p.session("bob", false).Value, ".")
		expect.Equal(t, with(i.session.Value), "ann", "with the session")
		for what, forged := range map[string]string{"of another user": bob + "." + signature, "without a signature": value, "with an empty one": value + ".",
			"garbage": "x.y", "empty": ""} {
			expect.Equal(t, with(forged), "", "a session %s", what)
		}
		time.Sleep(sessionTime + time.Second)
		expect.Equal(t, with(i.session.Value), "", "after its end")
		again := p.session("ann", false).Value
		writeUsers(t, path, "ann: "+bcryptOf(t, "changed"))
		time.Sleep(time.Minute) // until the file is read again
		expect.Equal(t, with(again), "", "after a change of the password")
	})
}

func TestClientOf_ReadsTheLastAddressThatAListedProxyHasAdded(t *testing.T) {
	s := config.Console{Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32")}}
	proxy, other := netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("10.0.0.8")
	r := httptest.NewRequest("GET", "/", nil)
	expect.Equal(t, clientOf(r, s, proxy), proxy, "without a header")
	r.Header["X-Forwarded-For"] = []string{"1.1.1.1", "2.2.2.2, 3.3.3.3"}
	expect.Equal(t, clientOf(r, s, proxy), netip.MustParseAddr("3.3.3.3"), "behind a proxy")
	expect.Equal(t, clientOf(r, s, other), other, "of another address, which may send any header")
	r.Header["X-Forwarded-For"] = []string{"unknown"}
	expect.Equal(t, clientOf(r, s, proxy), proxy, "without an address in the header")
}
