package login

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// A token is renewed after half of its life. If that fails, it is used until it ends, and no longer.
func TestRenewed_AsksAfterHalfOfATokensLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = time.Hour
		var log bytes.Buffer
		down, asked := error(nil), 0
		source := newRenewed(func(context.Context) (string, time.Time, error) {
			asked++
			return strings.Repeat("x", asked), time.Now().Add(life), down
		}, slog.New(slog.NewTextHandler(&log, nil)))
		for _, step := range []struct {
			wait  time.Duration
			down  error
			asked int
			token int // its length; 0: an error
		}{
			{0, nil, 1, 1},
			{life/2 - time.Second, nil, 1, 1},
			{time.Second, nil, 2, 2},                           // half of its life is over
			{life / 2, errors.New("the provider rests"), 3, 2}, // the last one is used
			{fetchPause / 2, errors.New("the provider rests"), 3, 2},
			{fetchPause / 2, errors.New("the provider rests"), 4, 2},
			{life / 2, errors.New("the provider rests"), 5, 0}, // it has ended
			{fetchPause / 2, nil, 5, 0},
			{fetchPause / 2, nil, 6, 6},
		} {
			time.Sleep(step.wait)
			down = step.down
			token, err := source.current(t.Context())
			if asked != step.asked || (err != nil) != (step.token == 0) || err == nil && len(token) != step.token {
				t.Fatalf("%+v: asked %d times, %v, %v", step, asked, token, err)
			}
		}
		text := log.String()
		expect.That(t, strings.Contains(text, "renewing the login to Kafka failed") && !strings.Contains(text, "xx"), "logged %q", text)
	})
}

// A provider that hangs delays the first of several logins, and none of those behind it; and no login beyond its own time.
func TestRenewed_DoesNotWaitWithoutEnd(t *testing.T) {
	for _, life := range []time.Duration{time.Hour, 0} {
		synctest.Test(t, func(t *testing.T) {
			hangs := life == 0
			source := newRenewed(func(ctx context.Context) (string, time.Time, error) {
				if hangs {
					<-ctx.Done()
				}
				return "x", time.Now().Add(life), ctx.Err()
			}, slog.New(slog.DiscardHandler))
			if !hangs {
				must.Get(source.current(t.Context()))(t)
				time.Sleep(50 * time.Minute)
				hangs = true
			}
			began := time.Now()
			for _, login := range []string{"that asks for a token", "that waits for it"} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, err := source.current(ctx)
				cancel()
				expect.Is(t, err, context.DeadlineExceeded, "a login %s", login)
			}
			expect.Equal(t, time.Since(began), 2*time.Second, "two logins of one second")
			for range 8 {
				token, err := source.current(t.Context())
				if took := time.Since(began); took != fetchTimeout || (err == nil) != (life > 0) || err == nil && token != "x" {
					t.Errorf("a login gets %v, %v after %v", token, err, took)
				}
			}
		})
	}
}

func fixed(token string) Token {
	return func(context.Context) (string, time.Time, error) { return token, time.Time{}, nil }
}

func TestOAuthBearer_SendsTheMessageOfTheStandard(t *testing.T) {
	for _, row := range []struct {
		extensions map[string]string
		want       string
	}{
		{nil, "n,,\x01auth=Bearer a.b-c_~+/==\x01\x01"},
		{map[string]string{"logicalCluster": "lkc-1", "identityPoolId": "pool 1"},
			"n,,\x01auth=Bearer a.b-c_~+/==\x01identityPoolId=pool 1\x01logicalCluster=lkc-1\x01\x01"},
	} {
		m := OAuthBearer(fixed("a.b-c_~+/=="), row.extensions, slog.New(slog.DiscardHandler))
		steps, message, err := m.Start(t.Context())
		if err != nil || string(message) != row.want || m.Name() != "OAUTHBEARER" {
			t.Fatalf("%s sends %q, %v; want %q", m.Name(), message, err, row.want)
		}
		if done, response, err := steps.Next(t.Context(), nil); !done || len(response) > 0 || err != nil {
			t.Errorf("after an empty answer: %v %q %v", done, response, err)
		}
	}
}

// A broker that rejects a token says why in JSON, and rejects the login only after one more byte.
func TestOAuthBearer_EndsTheTalkOfARejectedToken(t *testing.T) {
	steps, _, err := OAuthBearer(fixed("x"), nil, nil).Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done, response, err := steps.Next(t.Context(), []byte(`{"status":"invalid_token","scope":"kafka"}`))
	must.That(t, !done && string(response) == "\x01" && err == nil, "after the reason: %v %q %v", done, response, err)
	if _, _, err := steps.Next(t.Context(), nil); !errors.Is(err, kafka.SASLAuthenticationFailed) || !strings.Contains(err.Error(), "invalid_token") {
		t.Errorf("a broker that rejects nothing then: %v", err)
	}
	steps, _, _ = OAuthBearer(fixed("x"), nil, nil).Start(t.Context())
	if _, _, err := steps.Next(t.Context(), []byte("r=nonce")); err == nil {
		t.Error("the answer of another mechanism is accepted")
	}
}

// What is no token could break the message, and is not shown.
func TestOAuthBearer_RefusesWhatIsNoToken(t *testing.T) {
	for _, token := range []string{"", "hunter2\x01auth=Bearer x", `{"access_token":"hunter2"}`, "hunter2 x", "hunter2\nx"} {
		_, message, err := OAuthBearer(fixed(token), nil, nil).Start(t.Context())
		expect.That(t, err != nil && message == nil && !strings.Contains(err.Error(), "hunter2"), "%q: %q, %v", token, message, err)
	}
	for name, value := range map[string]string{"auth": "x", "": "x", "a-b": "x", "a": "", "b": "x\x01y", "c": "ü"} {
		expect.That(t, CheckExtensions(map[string]string{name: value}) != nil, "the extension %q=%q is accepted", name, value)
	}
	expect.NoError(t, CheckExtensions(map[string]string{"logicalCluster": "lkc-1"}))
}

// jwt returns a JWT that nobody has signed.
func jwt(claims string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + "."
}

func TestTokenFromFile_ReadsTheFileEachTime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	token := TokenFromFile(file)
	if _, _, err := token(t.Context()); !errors.Is(err, os.ErrNotExist) || strings.Contains(err.Error(), file) {
		t.Errorf("without the file: %v", err)
	}
	for _, content := range []string{"first\n", "second"} {
		must.Do(t, os.WriteFile(file, []byte(content), 0o600))
		if got, ends, err := token(t.Context()); got != strings.TrimSpace(content) || !ends.IsZero() || err != nil {
			t.Errorf("got %q, %v, %v", got, ends, err)
		}
	}
}

func TestTokenFromCommand(t *testing.T) {
	ends := time.Now().Add(time.Hour).Truncate(time.Second)
	signed := jwt(fmt.Sprintf(`{"sub":"relay","exp":%d}`, ends.Unix()))
	for _, row := range []struct {
		command []string
		want    string
		ends    time.Time
	}{
		{[]string{"echo", signed}, signed, ends},
		{[]string{"echo", "opaque"}, "opaque", time.Time{}},
		{[]string{"echo", "a.!.c"}, "a.!.c", time.Time{}},
		{[]string{"echo", jwt(`{"sub":"relay"}`)}, jwt(`{"sub":"relay"}`), time.Time{}},
	} {
		if got, ends, err := TokenFromCommand(row.command)(t.Context()); got != row.want || !ends.Equal(row.ends) || err != nil {
			t.Errorf("%q: got %q, %v, %v", row.command, got, ends, err)
		}
	}
	for _, command := range [][]string{{"sh", "-c", "echo hunter2; echo hunter2 >&2; exit 3"}, {"hunter2"}, {"/no/hunter2"}} {
		if _, _, err := TokenFromCommand(command)(t.Context()); err == nil || strings.Contains(err.Error(), "hunter2") ||
			!strings.Contains(err.Error(), "run it by hand") {
			t.Errorf("%q: %v", command, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := TokenFromCommand([]string{"sleep", "600"})(ctx); err == nil {
		t.Error("a command that does not end is awaited")
	}
}
