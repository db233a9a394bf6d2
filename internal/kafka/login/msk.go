package login

import (
	"errors"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	signer "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/aws_msk_iam_v2"
)

// MSK returns the mechanism AWS_MSK_IAM. Start signs the host name of the broker, which it takes from
// sasl.MetadataFromContext, with the credentials that the environment names. getenv is os.Getenv.
func MSK(getenv func(string) string, log *slog.Logger) (sasl.Mechanism, error) {
	region := getenv("AWS_REGION")
	if region == "" {
		region = getenv("AWS_DEFAULT_REGION")
	}
	if region == "" {
		return nil, errors.New("SASL AWS_MSK_IAM needs the region of the cluster: set AWS_REGION, such as eu-central-1")
	}
	client := &http.Client{Transport: &http.Transport{Proxy: proxyOf, DisableKeepAlives: true}}
	credentials := keep("AWS credentials", log, awsEnvironment{getenv, region, client}.credentials)
	return &aws_msk_iam_v2.Mechanism{Signer: signer.NewSigner(), Credentials: aws.CredentialsProviderFunc(credentials.get), Region: region}, nil
}

// proxyOf returns the proxy of the environment for https. Endpoints with http are those of the container
// and of the machine: a proxy would ask for credentials of another machine.
func proxyOf(req *http.Request) (*url.URL, error) {
	if req.URL.Scheme == "http" {
		return nil, nil
	}
	return http.ProxyFromEnvironment(req)
}
