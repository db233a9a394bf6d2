package access_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestThrottle_AnAddressThatGuessesMustWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withPasswords)
		guess := func(i int) request {
			return request{header: map[string]string{"Authorization": basic("ann", fmt.Sprint(i))}}
		}
		valid := func() request { return ann().request(request{}) }
		for i := range 100 { // logins that succeed are not limited
			if resp := r.do(valid()); resp.StatusCode != 200 {
				t.Fatalf("valid login %d answers %s", i, resp.Status)
			}
		}
		for i := range 30 {
			if resp := r.do(guess(i)); resp.StatusCode != 401 {
				t.Fatalf("guess %d answers %s", i, resp.Status)
			}
		}
		for _, q := range []request{guess(30), valid()} {
			if resp := r.do(q); resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "1" || r.reached != "" {
				t.Errorf("after 30 guesses the next answers %s", resp.Status)
			}
		}
		q := valid()
		q.from = "127.0.0.2:1"
		if resp := r.do(q); resp.StatusCode != 200 {
			t.Errorf("another address gets %s", resp.Status)
		}
		time.Sleep(time.Second)
		if resp := r.do(valid()); resp.StatusCode != 200 {
			t.Errorf("a second later a valid login answers %s", resp.Status)
		}
		if resp := r.do(guess(31)); resp.StatusCode != 401 {
			t.Errorf("a second later a guess answers %s", resp.Status)
		}
		if resp := r.do(guess(32)); resp.StatusCode != 429 {
			t.Errorf("a second guess in that second answers %s", resp.Status)
		}
		if lines := strings.Count(r.log.String(), `level=WARN msg="console login failed" address=127.0.0.1`); lines != 31 {
			t.Errorf("%d lines tell of failed logins, want 31", lines)
		}
	})
}
