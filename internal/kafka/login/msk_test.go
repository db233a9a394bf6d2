package login

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/aws_msk_iam_v2"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

type environ map[string]string

func (e environ) getenv(name string) string { return e[name] }

// signed is what the broker computes from the public fields and the secret key: the rules of the
// signature (AWS Signature Version 4), written out once more.
func signed(t *testing.T, m map[string]string, secret, token string) string {
	t.Helper()
	escape := strings.NewReplacer("/", "%2F", "+", "%2B", "=", "%3D", ":", "%3A").Replace
	query := "Action=" + escape(m["action"]) + "&X-Amz-Algorithm=" + m["x-amz-algorithm"] + "&X-Amz-Credential=" + escape(m["x-amz-credential"]) +
		"&X-Amz-Date=" + m["x-amz-date"] + "&X-Amz-Expires=" + m["x-amz-expires"]
	if token != "" {
		query += "&X-Amz-Security-Token=" + escape(token)
	}
	query += "&X-Amz-SignedHeaders=host"
	sum := func(text string) string { s := sha256.Sum256([]byte(text)); return hex.EncodeToString(s[:]) }
	scope := strings.SplitN(m["x-amz-credential"], "/", 2)[1]
	text := "AWS4-HMAC-SHA256\n" + m["x-amz-date"] + "\n" + scope + "\n" + sum("GET\n/\n"+query+"\nhost:"+m["host"]+"\n\nhost\n"+sum(""))
	key := []byte("AWS4" + secret)
	for _, part := range append(strings.Split(scope, "/"), text) {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(part))
		key = h.Sum(nil)
	}
	return hex.EncodeToString(key)
}

// The payload of a fixed time and key is known, and each signature is the one that the rules give.
func TestMSK_SignsTheHostOfTheBroker(t *testing.T) {
	for _, row := range []struct {
		env       environ
		host      string
		region    string
		signature string // "": not known beforehand
	}{
		{environ{"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "ACCESS_KEY", "AWS_SECRET_ACCESS_KEY": "SECRET_KEY"}, "localhost", "us-east-1",
			"6b8d25f9b45b9c7db9da855a49112d80379224153a27fd279c305a5b7940d1a7"},
		{environ{"AWS_DEFAULT_REGION": "cn-north-1", "AWS_ACCESS_KEY_ID": "ACCESS_KEY", "AWS_SECRET_ACCESS_KEY": "SECRET_KEY", "AWS_SESSION_TOKEN": "se/ss+ion="},
			"b-1.shop.abc.c2.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1", ""},
	} {
		m, err := MSK(row.env.getenv, slog.New(slog.DiscardHandler))
		must.That(t, err == nil && m.Name() == "AWS_MSK_IAM", "%v %v", m, err)
		m.(*aws_msk_iam_v2.Mechanism).SignTime = time.Date(2021, 10, 14, 13, 5, 0, 0, time.UTC)
		steps, message, err := m.Start(sasl.WithMetadata(t.Context(), &sasl.Metadata{Host: row.host}))
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]string
		must.Do(t, json.Unmarshal(message, &got))
		want := map[string]string{
			"version": "2020_10_22", "action": "kafka-cluster:Connect", "host": row.host, "user-agent": got["user-agent"],
			"x-amz-algorithm": "AWS4-HMAC-SHA256", "x-amz-credential": "ACCESS_KEY/20211014/" + row.region + "/kafka-cluster/aws4_request",
			"x-amz-date": "20211014T130500Z", "x-amz-expires": "300", "x-amz-signedheaders": "host",
			"x-amz-signature": signed(t, got, "SECRET_KEY", row.env["AWS_SESSION_TOKEN"]),
		}
		if token := row.env["AWS_SESSION_TOKEN"]; token != "" {
			want["x-amz-security-token"] = token
		}
		expect.Same(t, got, want, "the query for %s", row.host)
		expect.That(t, row.signature == "" || got["x-amz-signature"] == row.signature, "the signature is %s, want %s", got["x-amz-signature"], row.signature)
		if done, _, err := steps.Next(t.Context(), []byte(`{"version":"2020_10_22","request-id":"x"}`)); !done || err != nil {
			t.Error(done, err)
		}
	}
	expect.Says(t, expect.Err(MSK(environ{}.getenv, nil)), "set AWS_REGION", "without a region")
}

// The answers are those of the documents of AWS.
func TestAWSEnvironment_FindsCredentials(t *testing.T) {
	ends := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	const fromJSON = `{"Code":"Success","Type":"AWS-HMAC","AccessKeyId":"key","SecretAccessKey":"hunter2","Token":"session",` +
		`"Expiration":"2030-01-02T03:04:05Z","RoleArn":"x"}`
	stand := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse := func(ok bool) bool {
			if !ok {
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprint(w, "hunter2")
			}
			return !ok
		}
		switch r.Method + " " + r.URL.Path {
		case "POST /":
			r.ParseForm()
			if refuse(r.PostForm.Get("WebIdentityToken") == "pod" && r.PostForm.Get("RoleArn") == "arn:aws:iam::1:role/relay" &&
				r.PostForm.Get("RoleSessionName") == "orderclose" &&
				r.PostForm.Get("Action") == "AssumeRoleWithWebIdentity" && r.PostForm.Get("Version") == "2011-06-15") {
				return
			}
			fmt.Fprint(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
				<Audience>x</Audience><AssumedRoleUser><Arn>a</Arn><AssumedRoleId>b</AssumedRoleId></AssumedRoleUser><Credentials><SessionToken>session</SessionToken>
				<SecretAccessKey>hunter2</SecretAccessKey><Expiration>2030-01-02T03:04:05Z</Expiration><AccessKeyId>key</AccessKeyId></Credentials>
				</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`)
		case "GET /container":
			if !refuse(r.Header.Get("Authorization") == "pod") {
				fmt.Fprint(w, fromJSON)
			}
		case "PUT /latest/api/token":
			fmt.Fprint(w, "imds")
		case "GET /latest/meta-data/iam/security-credentials/":
			if !refuse(r.Header.Get("X-aws-ec2-metadata-token") == "imds") {
				fmt.Fprint(w, "relay\n")
			}
		case "GET /latest/meta-data/iam/security-credentials/relay":
			if !refuse(r.Header.Get("X-aws-ec2-metadata-token") == "imds") {
				fmt.Fprint(w, fromJSON)
			}
		case "GET /empty":
			fmt.Fprint(w, "{}")
		case "GET /html":
			fmt.Fprint(w, "<html>hunter2")
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer stand.Close()
	file := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(file, []byte("pod"), 0o600))
	find := func(env environ) (aws.Credentials, time.Time, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return awsEnvironment{env.getenv, "eu-central-1", stand.Client()}.credentials(ctx)
	}
	got, until, err := find(environ{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hunter2"})
	expect.That(t, err == nil && until.IsZero() && got.AccessKeyID == "key" && got.SecretAccessKey == "hunter2" && got.SessionToken == "",
		"keys of the environment: %v %v", until, err)
	for name, env := range map[string]environ{
		"a role by the pod's token":    {"AWS_ENDPOINT_URL_STS": stand.URL, "AWS_WEB_IDENTITY_TOKEN_FILE": file, "AWS_ROLE_ARN": "arn:aws:iam::1:role/relay"},
		"a container, token":           {"AWS_CONTAINER_CREDENTIALS_FULL_URI": stand.URL + "/container", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "pod"},
		"a container, token in a file": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": stand.URL + "/container", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": file},
		"a machine":                    {"AWS_EC2_METADATA_SERVICE_ENDPOINT": stand.URL},
	} {
		got, until, err := find(env)
		expect.That(t, err == nil && until.Equal(ends) && got.AccessKeyID == "key" && got.SecretAccessKey == "hunter2" && got.SessionToken == "session",
			"%s: %v %v", name, until, err)
	}
	for want, env := range map[string]environ{
		"but AWS_SECRET_ACCESS_KEY is not":                             {"AWS_ACCESS_KEY_ID": "key"},
		"AWS_WEB_IDENTITY_TOKEN_FILE: the token's file cannot be read": {"AWS_WEB_IDENTITY_TOKEN_FILE": "no/such"},
		"answered 403":                                   {"AWS_ENDPOINT_URL_STS": stand.URL, "AWS_WEB_IDENTITY_TOKEN_FILE": file, "AWS_ROLE_ARN": "wrong"},
		"the answer has no keys":                         {"AWS_CONTAINER_CREDENTIALS_FULL_URI": stand.URL + "/empty"},
		"the answer is not JSON":                         {"AWS_CONTAINER_CREDENTIALS_FULL_URI": stand.URL + "/html"},
		"the environment names none, and this is no EC2": {"AWS_EC2_METADATA_SERVICE_ENDPOINT": stand.URL + "/absent"},
	} {
		if _, _, err := find(env); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestProxyOf_AsksEndpointsOfTheMachineItself(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://proxy.example:3128")
	req := must.Get(http.NewRequest(http.MethodGet, ec2Endpoint+"/latest", nil))(t)
	expect.Equal(t, must.Get(proxyOf(req))(t), nil, "the proxy")
}
