package login

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// awsEnvironment finds credentials as the tools of AWS do, by the same variables: keys, a role by a
// token of Kubernetes (IRSA), the endpoint of the container (ECS, EKS Pod Identity), the machine (EC2).
// It reads no files of profiles. The packages of the SDK that find credentials would add 3.6 MB to the program.
type awsEnvironment struct {
	getenv func(string) string
	region string
	client *http.Client
}

const (
	ecsEndpoint = "http://169.254.170.2" // the same in every container
	ec2Endpoint = "http://169.254.169.254"
)

// credentials returns credentials and the time of their end. Keys of the environment have none.
func (e awsEnvironment) credentials(ctx context.Context) (c aws.Credentials, ends time.Time, err error) {
	switch {
	case e.getenv("AWS_ACCESS_KEY_ID") != "":
		c.AccessKeyID, c.SecretAccessKey, c.SessionToken = e.getenv("AWS_ACCESS_KEY_ID"), e.getenv("AWS_SECRET_ACCESS_KEY"), e.getenv("AWS_SESSION_TOKEN")
		if c.SecretAccessKey == "" {
			err = errors.New("AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not")
		}
		return c, time.Time{}, err
	case e.getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
		c, err = e.byWebIdentity(ctx)
	case e.getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")+e.getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "":
		c, err = e.byContainer(ctx)
	default:
		c, err = e.byMachine(ctx)
	}
	if err == nil && !c.HasKeys() {
		err = errors.New("the answer has no keys")
	}
	if err != nil {
		return aws.Credentials{}, time.Time{}, fmt.Errorf("no AWS credentials: %w", err)
	}
	return c, c.Expires, nil
}

// byWebIdentity exchanges the token of the pod's service account for credentials of a role.
func (e awsEnvironment) byWebIdentity(ctx context.Context) (c aws.Credentials, err error) {
	token, _, err := TokenFromFile(e.getenv("AWS_WEB_IDENTITY_TOKEN_FILE"))(ctx)
	if err != nil {
		return c, fmt.Errorf("AWS_WEB_IDENTITY_TOKEN_FILE: %w", err)
	}
	domain := "amazonaws.com"
	if strings.HasPrefix(e.region, "cn-") {
		domain += ".cn"
	}
	form := url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"}, "RoleArn": {e.getenv("AWS_ROLE_ARN")},
		"RoleSessionName": {cmp.Or(e.getenv("AWS_ROLE_SESSION_NAME"), "orderclose")}, "WebIdentityToken": {token},
	}
	to := cmp.Or(e.getenv("AWS_ENDPOINT_URL_STS"), "https://sts."+e.region+"."+domain)
	body, err := e.ask(ctx, http.MethodPost, to, strings.NewReader(form.Encode()), "Content-Type", "application/x-www-form-urlencoded")
	var answer struct {
		Credentials struct {
			AccessKeyID     string `xml:"AccessKeyId"`
			SecretAccessKey string
			SessionToken    string
			Expiration      time.Time
		} `xml:"AssumeRoleWithWebIdentityResult>Credentials"`
	}
	if err == nil && xml.Unmarshal(body, &answer) != nil {
		err = errors.New("the answer of STS is not XML")
	}
	got := answer.Credentials
	return aws.Credentials{AccessKeyID: got.AccessKeyID, SecretAccessKey: got.SecretAccessKey, SessionToken: got.SessionToken, CanExpire: true,
		Expires: got.Expiration}, err
}

// byContainer asks the endpoint that the container's environment names.
func (e awsEnvironment) byContainer(ctx context.Context) (c aws.Credentials, err error) {
	authorization := e.getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN")
	if file := e.getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"); file != "" {
		if authorization, _, err = TokenFromFile(file)(ctx); err != nil {
			return c, fmt.Errorf("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: %w", err)
		}
	}
	from := e.getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	if relative := e.getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"); relative != "" {
		from = ecsEndpoint + relative
	}
	body, err := e.ask(ctx, http.MethodGet, from, nil, "Authorization", authorization)
	return fromJSON(body, err)
}

// byMachine asks the metadata of an EC2 instance for the credentials of the machine's role.
func (e awsEnvironment) byMachine(ctx context.Context) (aws.Credentials, error) {
	base := cmp.Or(e.getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT"), ec2Endpoint) + "/latest/"
	token, err := e.ask(ctx, http.MethodPut, base+"api/token", nil, "X-aws-ec2-metadata-token-ttl-seconds", "60")
	if err != nil {
		return aws.Credentials{}, fmt.Errorf("the environment names none, and this is no EC2 instance with a role: %w", err)
	}
	roles := base + "meta-data/iam/security-credentials/"
	role, err := e.ask(ctx, http.MethodGet, roles, nil, "X-aws-ec2-metadata-token", string(token))
	if err != nil {
		return aws.Credentials{}, err
	}
	body, err := e.ask(ctx, http.MethodGet, roles+strings.TrimSpace(string(role)), nil, "X-aws-ec2-metadata-token", string(token))
	return fromJSON(body, err)
}

// fromJSON decodes the answer of a container's endpoint or of a machine.
func fromJSON(body []byte, err error) (aws.Credentials, error) {
	var answer struct {
		AccessKeyID     string `json:"AccessKeyId"`
		SecretAccessKey string
		Token           string
		Expiration      time.Time
	}
	if err == nil && json.Unmarshal(body, &answer) != nil {
		err = errors.New("the answer is not JSON with credentials")
	}
	return aws.Credentials{AccessKeyID: answer.AccessKeyID, SecretAccessKey: answer.SecretAccessKey, SessionToken: answer.Token, CanExpire: true,
		Expires: answer.Expiration}, err
}

// ask sends a request with a header. No error has the answer's text or what was sent.
func (e awsEnvironment) ask(ctx context.Context, method, to string, body io.Reader, header, value string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, to, body)
	if err != nil {
		return nil, err
	}
	if value != "" {
		req.Header.Set(header, value)
	}
	res, err := e.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %d", req.URL.Redacted(), res.StatusCode)
	}
	return io.ReadAll(io.LimitReader(res.Body, 1<<20))
}
