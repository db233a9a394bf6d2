package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// A program that embeds the pipeline sets its own secret for the service that closes orders.
func TestSecrets_OfTheServiceThatCloses(t *testing.T) {
	cfg := must.Get(Parse("shop.yaml", []byte("buckets: [1m]\ncloser: {http: {url: 'https://shop.internal/close'}}\n")))(t)
	for secret, want := range map[string]string{"": "Options.Secrets.HTTP", "short": "24 to 64 bytes", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": ""} {
		o := Options{Config: cfg}
		if secret != "" {
			o.Secrets.HTTP = []string{secret}
		}
		a, err := New(o)
		must.Do(t, err)
		_, err = a.closeMethodOnce()
		if a.Close(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("secret %q: %v, want %q", secret, err, want)
		}
	}
}

func TestSettings_PrintNoSecret(t *testing.T) {
	for _, v := range []any{Secrets{HTTP: []string{"hunter2"}, Payment: []string{"hunter2"}}} {
		s := fmt.Sprintf("%v %+v %#v", v, v, v)
		expect.That(t, !strings.Contains(s, "hunter2"), "%v", s)
	}
}
