package realtest

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/internal/wire"
)

// tokenLife is the life of a token of provider. It is long enough for a login on a busy machine.
const tokenLife = 12 * time.Second

// provider is an OIDC provider that signs tokens for the client that asks.
type provider struct {
	*httptest.Server
	key    *rsa.PrivateKey
	issued atomic.Int32
}

func newProvider(t *testing.T) *provider {
	key := must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	p := &provider{key: key}
	routes := http.NewServeMux()
	routes.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		client, secret, _ := r.BasicAuth()
		secret, _ = url.QueryUnescape(secret) // RFC 6749, 2.3.1
		w.Header().Set("Content-Type", "application/json")
		if secret != password(client) {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":"invalid_client"}`)
			return
		}
		p.issued.Add(1)
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":%d}`, p.sign(t, client, r.FormValue("scope")), int(tokenLife.Seconds()))
	})
	routes.HandleFunc("GET /jwks", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"keys":[{"kty":"RSA","kid":"1","use":"sig","alg":"RS256","n":%q,"e":%q}]}`,
			base64.RawURLEncoding.EncodeToString(key.N.Bytes()), base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()))
	})
	p.Server = httptest.NewServer(routes)
	t.Cleanup(p.Close)
	return p
}

// sign returns a token (RFC 7515). The scope asked for is its audience.
func (p *provider) sign(t *testing.T, client, audience string) string {
	now := time.Now()
	claims, err := json.Marshal(map[string]any{"sub": client, "aud": audience, "iss": p.URL, "iat": now.Unix(), "exp": now.Add(tokenLife).Unix()})
	expect.NoError(t, err)
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"1"}`)) + "." + base64.RawURLEncoding.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(nil, p.key, crypto.SHA256, sum[:])
	expect.NoError(t, err)
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// A broker that verifies the signature, issuer, audience and end of tokens, and ends the sessions with
// them, does not end the generation of a group. The tokens come from a token endpoint.
func TestSecure_TokensAreRenewedBeforeTheyEnd(t *testing.T) {
	placementOf(t)
	t.Parallel()
	p := newProvider(t)
	b := newBrokerWith(t, []string{
		"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=" + p.URL + "/jwks", "connections.max.reauth.ms=3600000",
		"listener.name.sasl.oauthbearer.sasl.server.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
		// Without this validator, Kafka 4.1.0 verifies neither signature nor audience.
		"sasl.oauthbearer.jwt.validator.class=org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator",
		"sasl.oauthbearer.jwks.endpoint.url=" + p.URL + "/jwks", "sasl.oauthbearer.expected.audience=kafka", "sasl.oauthbearer.expected.issuer=" + p.URL,
	})
	b.grant([]kafkago.ACLEntry{row{"", "Topic", "t", "Read"}.acl(t, "member", ""), row{"", "Group", "g", "Read"}.acl(t, "member", "")})
	_, security := b.mutual("admin")
	admin := b.connect(t, access{brokers: []string{b.mtls}, security: security})
	must.Do(t, apply(t.Context(), admin, []kafka.TopicSpec{{Name: "t", Partitions: 1, Replication: 1}}))
	by := func(secret, scope string) access {
		return b.with(config.EnvBrokers+"="+b.sasl, config.EnvTLSCA+"="+b.file("ca.crt"), config.EnvSASLMechanism+"="+kafka.OAuthBearer,
			config.EnvSASLToken+"="+p.URL+"/token "+scope, config.EnvSASLUser+"=member", config.EnvSASLPassword+"="+secret)
	}
	if err := ping(t, by(password("member"), "other")); !errors.Is(err, kafkago.SASLAuthenticationFailed) ||
		!strings.Contains(err.Error(), `the broker rejects user "member" with OAUTHBEARER; check the token's issuer, audience`) {
		t.Errorf("a token for another audience: %v", err)
	}
	wrong := b.connect(t, by("wrong", "kafka"))
	if err := wrong.Ping(t.Context()); err == nil || !strings.Contains(err.Error(),
		`the token endpoint answered 401 "invalid_client": check the client's id, secret and scope`) {
		t.Errorf("a wrong secret: %v", err)
	}

	before := p.issued.Load()
	member := b.connect(t, by(password("member"), "kafka"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var generations atomic.Int32
	enough := func() bool { return p.issued.Load()-before >= 4 } // three ends of a token
	must.Do(t, member.Consume(ctx, "g", "t", func(serving context.Context, claim wire.Claim) {
		generations.Add(1)
		for scenario.Pause(serving, 500*time.Millisecond) {
			claim.Done(0, "")
			if enough() {
				cancel()
			}
		}
	}))
	expect.Equal(t, generations.Load(), 1, "generations during the lives of %d tokens", p.issued.Load()-before)
}
