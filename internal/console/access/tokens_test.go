package access

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// hexa is a hash.
var hexa = fmt.Sprintf("%x", sha256.Sum256([]byte("a token")))

// wrongTokens are files of tokens with the errors that they get.
var wrongTokens = map[string]string{
	"":                           "the file has no users; write a line for each",
	"# a comment\n\n":            "the file has no users; write a line for each",
	"ann operator\n":             "line 1: " + errTokenLine.Error(),
	"ann operator hunter2\n":     "line 1: " + errTokenLine.Error(),
	"ann operator " + hexa:       "line 1: " + errTokenLine.Error(),
	"ann operator sha1:" + hexa:  "line 1: " + errTokenLine.Error(),
	"ann operator sha256:hunter": "line 1: " + errTokenLine.Error(),
	"\n#\nann operator sha256:" + hexa[1:] + "\n":                            "line 3: " + errTokenLine.Error(),
	"ann operator sha256:" + hexa + "00\n":                                   "line 1: " + errTokenLine.Error(),
	"ann operator sha256:" + hexa[1:] + "g\n":                                "line 1: " + errTokenLine.Error(),
	"ann operator sha256:" + hexa + " hunter2\n":                             "line 1: " + errTokenLine.Error(),
	"ann hunter2 sha256:" + hexa:                                             "line 1: " + errTokenRole.Error(),
	"ann Operator sha256:" + hexa:                                            "line 1: " + errTokenRole.Error(),
	"a\x00n operator sha256:" + hexa:                                         "line 1: " + errTokenName.Error(),
	"\xff operator sha256:" + hexa:                                           "line 1: " + errTokenName.Error(),
	strings.Repeat("x", 201) + " viewer sha256:" + hexa:                      "line 1: " + errTokenName.Error(),
	"ann operator sha256:" + hexa + "\r\nben viewer sha256:" + hexa + "\r\n": "line 2: " + errTokenSame.Error(),
	"ann\n\nben hunter2 sha256:" + hexa:                                      "line 1: " + errTokenLine.Error() + "\nline 3: " + errTokenRole.Error(),
}

func TestParseTokens_ErrorsNameTheLineAndQuoteNothing(t *testing.T) {
	for text, want := range wrongTokens {
		got, err := parseTokens(text)
		if err == nil || err.Error() != want || got != nil {
			t.Errorf("%q: got %v, %v, want %s", text, got, err, want)
		}
	}
}

func TestParseTokens_ReadsEveryLine(t *testing.T) {
	other := strings.Repeat("AB", 32)
	got, err := parseTokens("\xef\xbb\xbf# the users\n\n\tann  operator\tsha256:" + hexa + "\r\n李 viewer sha256:" + other)
	if err == nil || !strings.HasPrefix(err.Error(), "line 1: ") { // the byte order mark is no comment
		t.Errorf("a byte order mark is accepted: %v", got)
	}
	got, err = parseTokens("# the users\n\n\tann  operator\tsha256:" + hexa + "\r\n李 viewer sha256:" + other)
	if err != nil || len(got) != 2 || got[0].name != "ann" || got[0].role != Operator || got[1].name != "李" || got[1].role != Viewer || got[1].token[0] != 0xab {
		t.Errorf("got %v, %v", got, err)
	}
}

func FuzzParseTokens(f *testing.F) {
	for text := range wrongTokens {
		f.Add(text)
	}
	f.Add("ann operator sha256:" + hexa)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseTokens(text)
		if (err == nil) != (len(all) > 0) {
			t.Errorf("got %v, %v", all, err)
		}
		for _, one := range all {
			if !validName(one.name) || one.role != Viewer && one.role != Operator {
				t.Errorf("accepted %+v", one)
			}
		}
	})
}

func FuzzHostOf(f *testing.F) {
	for _, host := range []string{"localhost:1", "[::1]:1", "::1", "[fe80::1%eth0]", "a.:b", "::ffff:1.2.3.4"} {
		f.Add(host)
	}
	accepted := map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true}
	f.Fuzz(func(t *testing.T, host string) {
		if accepted[hostOf(host)] && strings.ContainsAny(host, "/@?#\\ ") {
			// A browser takes the part before these letters, or after @, for the host.
			if name := strings.Split(host, ":")[0]; !accepted[hostOf(name)] && !strings.HasPrefix(host, "[") {
				t.Errorf("%q is accepted", host)
			}
		}
	})
}

func TestSessions_AreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sessions
		first := s.begin([32]byte{1})
		time.Sleep(time.Second)
		second := s.begin([32]byte{2})
		for i := range maxSessions - 1 {
			time.Sleep(time.Second)
			s.begin([32]byte{3, byte(i / maxOfToken)})
		}
		if _, ok := s.find(first); ok || len(s.open) != maxSessions {
			t.Errorf("%d sessions are open, the oldest is: %v", len(s.open), ok)
		}
		if one, ok := s.find(second); !ok || one.token != [32]byte{2} {
			t.Error("a session has ended that is not the oldest")
		}
		time.Sleep(sessionLifetime + time.Second)
		s.begin([32]byte{4})
		if len(s.open) != 1 {
			t.Errorf("%d sessions are kept, want 1", len(s.open))
		}
	})
}

func TestThrottle_CountsNetworksOfIPv6AndIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var th throttle
		at := func(text string) netip.Addr { return netip.MustParseAddr(text) }
		for range loginBurst / 2 {
			th.begin(at("fd00::1"))
			th.begin(at("fd00::ffff:2"))
		}
		if th.begin(at("fd00::3")) {
			t.Error("a client with many addresses is not limited")
		}
		if !th.begin(at("fd00:0:0:1::1")) || !th.begin(at("10.0.0.1")) || !th.begin(netip.Addr{}) {
			t.Error("another network is limited")
		}
		next := at("10.1.0.0")
		for range 2 * maxAddresses {
			th.begin(next)
			next = next.Next()
		}
		if len(th.failures) > maxAddresses+1 {
			t.Errorf("%d addresses are kept", len(th.failures))
		}
		if th.begin(next) {
			t.Error("addresses that are not kept are not limited together")
		}
		time.Sleep(time.Minute)
		if !th.begin(next) || len(th.failures) > 2 {
			t.Errorf("after a minute %d addresses are kept", len(th.failures))
		}
		th.succeed(next)
		if _, kept := th.failures[th.key(next)]; kept {
			t.Error("an address without failures is kept")
		}
	})
}

// A comparison does not tell how much of a token is right: each line is compared, with all bytes.
func TestTokens_FindComparesEveryLine(t *testing.T) {
	var all []holder
	for i := range 3 {
		all = append(all, holder{name: fmt.Sprint(i), role: Viewer, token: sha256.Sum256([]byte{byte(i)})})
	}
	m := &tokens{file: &file[[]holder]{value: all, read: time.Now().Add(time.Hour)}, logger: slog.New(slog.DiscardHandler)}
	for i, one := range all {
		if got, ok := m.find(one.token); !ok || got.name != fmt.Sprint(i) {
			t.Errorf("got %v, %v", got, ok)
		}
		for at := range one.token {
			wrong := one.token
			wrong[at] ^= 1
			if got, ok := m.find(wrong); ok {
				t.Errorf("a hash that differs in byte %d is that of %v", at, got)
			}
		}
	}
}
