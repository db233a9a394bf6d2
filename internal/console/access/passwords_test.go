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
)

// bcrypted is the hash of "pass:word" that the C library writes, as htpasswd does.
const bcrypted = "$2y$05$abcdefghijklmnopqrstuuDIEddBSuRWBBEY6g5zv60IAP5bSSfki"

var wrongPasswords = map[string]string{
	"":                              "the file has no users; write a line for each",
	"ann\n":                         "line 1: " + errPasswordLine.Error(),
	"ann:hunter2\n":                 "line 1: " + errPasswordLine.Error(),
	"ann:{SHA}hunter2=\n":           "line 1: " + errPasswordLine.Error(),
	"ann:$apr1$hunter2$x":           "line 1: " + errPasswordLine.Error(),
	"ann: " + bcrypted:              "line 1: " + errPasswordLine.Error(),
	"ann:" + bcrypted + ":operator": "line 1: " + errPasswordLine.Error(),
	"ann:" + bcrypted[:59]:          "line 1: " + errPasswordLine.Error(),
	"ann:" + strings.Replace(bcrypted, "2y", "2x", 1):   "line 1: " + errPasswordLine.Error(),
	"ann:" + strings.Replace(bcrypted, "$05", "$15", 1): "line 1: " + errPasswordCost.Error(),
	"ann:" + strings.Replace(bcrypted, "$05", "$99", 1): "line 1: " + errPasswordCost.Error(),
	"ann:" + strings.Replace(bcrypted, "$05", "$03", 1): "line 1: " + errPasswordCost.Error(),
	"#\n:" + bcrypted:  "line 2: " + errPasswordName.Error(),
	"a\tn:" + bcrypted: "line 1: " + errPasswordName.Error(),
	"ann:" + bcrypted + "\nann:" + bcrypted + "\nben:x": "line 2: " + errPasswordSame.Error() + "\nline 3: " + errPasswordLine.Error(),
}

func TestParsePasswords_ErrorsNameTheLineAndQuoteNothing(t *testing.T) {
	for text, want := range wrongPasswords {
		got, err := parsePasswords(text)
		if err == nil || err.Error() != want || got != nil {
			t.Errorf("%q: got %v, %v, want %s", text, got, err, want)
		}
	}
	got, err := parsePasswords("# of htpasswd\n\nann:" + bcrypted + "\r\nben b:" + strings.Replace(bcrypted, "2y", "2b", 1) + "\n")
	if err != nil || len(got) != 2 || got["ann"] != bcrypted {
		t.Errorf("got %v, %v", got, err)
	}
}

func FuzzParsePasswords(f *testing.F) {
	for text := range wrongPasswords {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parsePasswords(text)
		if (err == nil) != (len(all) > 0) {
			t.Errorf("got %v, %v", all, err)
		}
		for name, hash := range all {
			if cost, err := bcrypt.Cost([]byte(hash)); !validName(name) || err != nil || cost > maxCost {
				t.Errorf("accepted %q: %q, cost %d, %v", name, hash, cost, err)
			}
		}
	})
}

// newTestPasswords returns the method with a file of the lines.
func newTestPasswords(t *testing.T, lines string) (p *passwords, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "passwords")
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := newPasswords(config.Console{PasswordsFile: path}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p, path
}

func bcryptOf(t *testing.T, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
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

func TestPasswords_AcceptTheLinesOfTheFile(t *testing.T) {
	p, _ := newTestPasswords(t, "ann:"+bcrypted+"\n李:"+bcryptOf(t, "密码")+"\n")
	for _, row := range []struct {
		name, password string
		want           Reason
	}{
		{"ann", "pass:word", ""}, {"李", "密码", ""}, {"ann", "pass:word", ""}, {"ann", "pass", WrongLogin}, {"ann", "", WrongLogin}, {"", "", WrongLogin}, {"Ann", "pass:word", WrongLogin},
		{"ben", "pass:word", WrongLogin}, {"李", "pass:word", WrongLogin}, {"ann", "密码", WrongLogin}, {"ann\x00pass", ":word", WrongLogin},
	} {
		if got := ask(p, row.name, row.password); got != row.want {
			t.Errorf("%q with %q is refused with %q, want %q", row.name, row.password, got, row.want)
		}
	}
}

// A check of bcrypt costs 50 ms: the requests of an open page must not.
func TestPasswords_AreCheckedOnceInFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, path := newTestPasswords(t, "ann:"+bcryptOf(t, "hunter2")+"\n")
		busy := func() { p.slot <- struct{}{} } // no password can be checked by bcrypt
		free := func() { <-p.slot }
		if ask(p, "ann", "hunter2") != "" {
			t.Fatal("the password is refused")
		}
		busy()
		time.Sleep(goodFor - time.Second)
		if got := ask(p, "ann", "hunter2"); got != "" {
			t.Errorf("the password is checked again: %s", got)
		}
		if got := ask(p, "ann", "hunter3"); got != Busy {
			t.Errorf("another password is not checked: %q", got)
		}
		time.Sleep(time.Second)
		if got := ask(p, "ann", "hunter2"); got != Busy {
			t.Errorf("after five minutes the password is not checked again: %q", got)
		}
		free()
		if ask(p, "ann", "hunter2") != "" {
			t.Error("the password is refused")
		}
		if err := os.WriteFile(path, []byte("ann:"+bcryptOf(t, "hunter3")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * rereadInterval)
		if got := ask(p, "ann", "hunter2"); got != WrongLogin {
			t.Errorf("the old password is accepted after a change of the file: %q", got)
		}
	})
}

// The requests of a page come together: they share one check, and one guess.
func TestPasswords_ParallelRequestsShareACheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTestPasswords(t, "ann:"+bcryptOf(t, "hunter2")+"\n")
		p.slot <- struct{}{}
		var wait sync.WaitGroup
		answers := make([]Reason, 3*loginBurst)
		for i := range answers {
			wait.Go(func() { answers[i] = ask(p, "ann", "hunter2") })
		}
		synctest.Wait()
		<-p.slot
		wait.Wait()
		for i, got := range answers {
			if got != "" {
				t.Errorf("request %d is refused with %s", i, got)
			}
		}
	})
}

// Parallel requests with other names or passwords get their own answers.
func TestPasswords_OtherRequestsShareNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTestPasswords(t, "ann:"+bcryptOf(t, "hunter2")+"\n")
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
			if *got != WrongLogin {
				t.Errorf("%q is refused with %q", name, *got)
			}
		}
		if right != "" {
			t.Errorf("the valid password is refused with %s", right)
		}
	})
}

// Whatever the load, one password is checked at a time, and none waits longer than 5 s.
func TestPasswords_ChecksAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTestPasswords(t, "ann:"+bcryptOf(t, "hunter2")+"\n")
		p.slot <- struct{}{}
		began := time.Now()
		if got := ask(p, "ann", "hunter2"); got != Busy || time.Since(began) != slotTimeout {
			t.Errorf("answers %q after %v", got, time.Since(began))
		}
		var wait sync.WaitGroup
		for i := range loginBurst {
			wait.Go(func() { ask(p, "ann", strings.Repeat("x", i)) })
		}
		wait.Wait()
		<-p.slot
		for i := range loginBurst { // a busy console does not count as guesses
			if got := ask(p, "ann", strings.Repeat("x", i)); got != WrongLogin {
				t.Fatalf("guess %d is refused with %s", i, got)
			}
		}
	})
}
