package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/release"
)

// A program that embeds the pipeline sets its own secret for the service that closes orders.
func TestSecrets_OfTheServiceThatCloses(t *testing.T) {
	cfg := must.Get(Parse("shop.yaml", []byte("buckets: [1m]\ncloser: {kind: http, http: {url: 'https://shop.internal/close'}}\n")))(t)
	for secret, want := range map[string]string{"": "Options.Secrets.HTTP", "short": "at least 16", "a secret of the tests": ""} {
		o := Options{Config: cfg}
		if secret != "" {
			o.Secrets.HTTP = []string{secret}
		}
		a, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.closeMethodOnce()
		if a.Close(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("secret %q: %v, want %q", secret, err, want)
		}
	}
}

func TestSettings_PrintNoSecret(t *testing.T) {
	for _, v := range []any{Secrets{HTTP: []string{"hunter2"}, Payment: []string{"hunter2"}}} {
		if s := fmt.Sprintf("%v %+v %#v", v, v, v); strings.Contains(s, "hunter2") {
			t.Error(s)
		}
	}
}

// The release worker sends a token, and believes that stock was returned.
func TestRelease_RefusesAServiceWithoutTLS(t *testing.T) {
	for accept, want := range map[string]string{"": "add without_tls to accept", "accept: [without_tls]\n": ""} {
		a := &App{o: Options{Config: must.Get(Parse("shop.yaml", []byte(accept+"buckets: [1m]\n")))(t), Releaser: release.NewHTTP("http://stock.internal/release", "t")}}
		err := func() (err error) {
			defer func() { _ = recover() }() // the App is not complete
			_, err = a.buildRelease()
			return err
		}()
		expect.That(t, want == "" || err != nil && strings.Contains(err.Error(), want), "%q: %v", accept, err)
	}
}
