package signature

import (
	"cmp"
	"errors"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

const secretOne, secretTwo = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDc2FsdHNhbHQ="

func keysOf(t *testing.T, secrets ...string) Keys {
	t.Helper()
	return must.Get(Parse(secrets))(t)
}

// The example of the specification.
func TestSign_IsThatOfStandardWebhooks(t *testing.T) {
	h := http.Header{}
	keysOf(t, secretOne).Sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	expect.Equal(t, h.Get("webhook-id"), "msg_p5jXN8AQM9LWM0D4loKWxJek", "id")
	expect.Equal(t, h.Get("webhook-timestamp"), "1614265330", "timestamp")
	expect.Equal(t, h.Get("webhook-signature"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "signature")
}

// Services in other languages are written by docs/http.md.
func TestSign_MatchesTheDocumentation(t *testing.T) {
	doc := string(must.Get(os.ReadFile("../../docs/http.md"))(t))
	names := regexp.MustCompile("\\| body \\| by `(\\S+)` \\| by `(\\S+)` \\|").FindStringSubmatch(doc)
	headers := regexp.MustCompile("webhook-id: (\\S+)\nwebhook-timestamp: 1772366700\nwebhook-signature: (\\S+)\n").FindStringSubmatch(doc)
	rows := regexp.MustCompile("\\), (\\d+) bytes \\| `(v1,\\S+)` \\| `(v1,\\S+)` \\|").FindAllStringSubmatch(doc, -1)
	must.That(t, names != nil && headers != nil && len(rows) == 3, "secrets %q, headers %q, test vectors %q", names, headers, rows)
	expect.That(t, strings.Contains(doc, "the id `"+headers[1]+"` and the timestamp 1772366700:"), "the vectors have another id than the example")
	expect.Equal(t, headers[2], rows[0][2], "the signature of the example")
	for i, block := range []string{"request", "cancel question", "question"} {
		_, rest, _ := strings.Cut(doc, "```json "+block+"\n")
		body, _, _ := strings.Cut(rest, "\n```")
		expect.Equal(t, rows[i][1], strconv.Itoa(len(body)), "bytes of the %s", block)
		h := http.Header{}
		keysOf(t, names[1:]...).Sign(h, headers[1], time.Unix(1772366700, 0), []byte(body))
		expect.Equal(t, h.Get("webhook-signature"), rows[i][2]+" "+rows[i][3], "signatures of the %s", block)
	}
}

func TestSecrets_AreReadAndNeverShown(t *testing.T) {
	for raw, n := range map[string]int{
		secretOne: 1, secretOne + ", " + secretTwo: 2, secretTwo + "\r\n" + secretOne + "\n": 2, secretOne + " " + secretTwo: 2, "": 0, " ,\n": 0,
		"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": 0, "whsec_c2hvcnQ=": 0, "whsec_ÄÖ": 0, secretOne + "=": 0,
		"whsec_" + strings.Repeat("QUFB", 7) + "QUE=": 0, "whsec_" + strings.Repeat("QUFB", 8): 1, // 23 and 24 bytes
		"whsec_" + strings.Repeat("QUFB", 21) + "QQ==": 1, secretOne + ",whsec_" + strings.Repeat("QUFB", 21) + "QUE=": 0, // 64 and 65 bytes
	} {
		keys, err := Parse(Split(raw))
		expect.That(t, len(keys) == n && (err != nil) == (n == 0), "%q: %d keys, %v", raw, len(keys), err)
		if err != nil {
			expect.That(t, strings.Contains(err.Error(), "make one with: echo whsec_") && !strings.Contains(err.Error(), "MfKQ9"), "%v", err)
		}
	}
}

func TestVerify(t *testing.T) {
	one, two, both, other := keysOf(t, secretOne), keysOf(t, secretTwo), keysOf(t, secretTwo, secretOne), keysOf(t, "whsec_"+strings.Repeat("QUFB", 8))
	now := time.Unix(1772366700, 999)
	for name, row := range map[string]struct {
		by, keys            Keys
		age                 time.Duration
		header, value, body string // RIGHT in value is the right MAC
		want                error
	}{
		"signed": {},
		"signed by two secrets, one of them known": {by: both},
		"signed by one of two known secrets":       {by: one, keys: both},
		"signed with an unknown secret":            {by: other, keys: both, want: ErrWrong},
		"signed with another secret":               {by: two, want: ErrWrong},
		"5 minutes old":                            {age: 5*time.Minute - time.Second},
		"older":                                    {age: 5*time.Minute + time.Second, want: ErrTimestamp},
		"from the future":                          {age: -5*time.Minute - time.Second, want: ErrTimestamp},
		"with another body":                        {body: `{"a":2}`, want: ErrWrong},
		"with another time":                        {header: headerTimestamp, value: "1772366701", want: ErrWrong},
		"with another id":                          {header: headerID, value: "msg_2", want: ErrWrong},
		"without an id":                            {header: headerID, want: ErrMissing},
		"without a time":                           {header: headerTimestamp, want: ErrMissing},
		"without a signature":                      {header: headerSignature, want: ErrMissing},
		"with an empty signature":                  {header: headerSignature, value: "v1,", want: ErrWrong},
		"in another scheme":                        {header: headerSignature, value: "v0,RIGHT", want: ErrWrong},
		"with an unknown scheme too":               {header: headerSignature, value: "v1a,xyz  v1,RIGHT"},
		"without secrets to verify":                {keys: Keys{}, want: ErrWrong},
	} {
		if row.by == nil {
			row.by = one
		}
		if row.keys == nil {
			row.keys = one
		}
		h := http.Header{}
		row.by.Sign(h, "msg_1", now.Add(-row.age), []byte(`{"a":1}`))
		if row.header != "" {
			h.Set(row.header, strings.Replace(row.value, "RIGHT", strings.TrimPrefix(h.Get(headerSignature), "v1,"), 1))
		}
		err := row.keys.Verify(h, []byte(cmp.Or(row.body, `{"a":1}`)), now)
		expect.That(t, errors.Is(err, row.want), "a request %s: %v, want %v", name, err, row.want)
	}
}

// An attacker could otherwise send a quarter of a million signatures with 4 MB, and have a terabyte hashed.
func TestVerify_HashesTheBodyOnceForEachSecret(t *testing.T) {
	keys := keysOf(t, secretOne)
	hashing := func(signatures int) float64 {
		h := http.Header{headerID: {"msg_1"}, headerTimestamp: {"1772366700"}, headerSignature: {strings.Repeat("v1, ", signatures)}}
		return testing.AllocsPerRun(10, func() { _ = keys.Verify(h, []byte("{}"), time.Now()) })
	}
	one, many := hashing(1), hashing(1000)
	expect.That(t, many <= one, "%v allocations for one signature, %v for a thousand", one, many)
}

func TestCheckURL(t *testing.T) {
	for url, good := range map[string]bool{
		"": false, "shop/close": false, "ftp://shop/": false, "http://": false, "http://u:p@shop/": false, "http://shop/#x": false, "https://shop/?x=1": true,
	} {
		expect.Equal(t, CheckURL(url) == nil, good, "%q is accepted", url)
	}
}

// FuzzVerify verifies headers of any text. Without the secret nothing is accepted.
func FuzzVerify(f *testing.F) {
	at, body := time.Unix(1772366700, 0), []byte(`{"orders":[]}`)
	keys := Keys{[]byte("a secret of the tests, one"), []byte("a secret of the tests, two")}
	h := http.Header{}
	keys.Sign(h, "msg_1", at, body)
	stamp, signatures := h.Get(headerTimestamp), h.Get(headerSignature)
	for _, seed := range [][2]string{{stamp, signatures}, {stamp, "v1, v1,AA== v2,ff  " + signatures}, {"+" + stamp, signatures}, {"0" + stamp, signatures},
		{"-9223372036854775808", "v1,"}} {
		f.Add("msg_1", seed[0], seed[1], body)
	}
	f.Fuzz(func(t *testing.T, id, stamp, signatures string, body []byte) {
		h := http.Header{headerID: {id}, headerTimestamp: {stamp}, headerSignature: {signatures}}
		must.That(t, Keys{[]byte("a secret that nobody has signed with")}.Verify(h, body, at) != nil, "accepted without the secret")
		_ = keys.Verify(h, body, at)
	})
}
