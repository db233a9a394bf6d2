package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	ordercloseconfig "github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/payments/internal/signed"
)

const defaultListen = "127.0.0.1:9470" // loopback: the operator decides who else may connect

// config is the content of the configuration file. docs/payments.md describes it.
type config struct {
	Listen    string           `yaml:"listen"`
	Query     string           `yaml:"query"`
	Stripe    *stripeConfig    `yaml:"stripe"`
	PayPal    *paypalConfig    `yaml:"paypal"`
	Alipay    *alipayConfig    `yaml:"alipay"`
	WeChatPay *wechatpayConfig `yaml:"wechatpay"`
}

type stripeConfig struct {
	KeyFile    string `yaml:"key_file"`
	Account    string `yaml:"account"`
	Authorized string `yaml:"authorized"`
	URL        string `yaml:"url"` // of a test server in place of Stripe; "": Stripe

	key string // the content of KeyFile
}

type paypalConfig struct {
	ClientID              string `yaml:"client_id"`
	SecretFile            string `yaml:"secret_file"`
	Sandbox               bool   `yaml:"sandbox"`
	ShopCapturesBeforeDue bool   `yaml:"shop_captures_before_due"`

	secret string // the content of SecretFile
}

type alipayConfig struct {
	AppID               string `yaml:"app_id"`
	PrivateKeyFile      string `yaml:"private_key_file"`
	AlipayPublicKeyFile string `yaml:"alipay_public_key_file"`
	AppCertificateFile  string `yaml:"app_certificate_file"`
	RootCertificateFile string `yaml:"root_certificate_file"`
	Sandbox             bool   `yaml:"sandbox"`

	privateKey, publicKey, appCertificate, rootCertificates string // the contents of the files
}

type wechatpayConfig struct {
	MerchantID        string `yaml:"merchant_id"`
	CertificateSerial string `yaml:"certificate_serial"`
	PrivateKeyFile    string `yaml:"private_key_file"`
	PublicKeyID       string `yaml:"public_key_id"`
	PublicKeyFile     string `yaml:"public_key_file"`

	privateKey, publicKey string // the contents of the files
}

// Values of stripe.authorized.
const (
	authorizedRelease = "release"
	authorizedPaid    = "paid"
)

// goType is what the parser says about the types of this program, which the reader does not know.
var goType = regexp.MustCompile(` (in|into) (type )?main\.\w+`)

// readConfig reads the configuration and the secrets that it names. The error lists all mistakes, with
// their lines if the parser found them.
func readConfig(name string) (config, error) {
	var c config
	data, err := ordercloseconfig.ReadFile(name, ordercloseconfig.MaxFile)
	if err != nil {
		return c, err
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, fmt.Errorf("%s: %s", name, goType.ReplaceAllString(err.Error(), ""))
	}
	var mistakes []error
	mistake := func(key, text string, args ...any) {
		mistakes = append(mistakes, fmt.Errorf("%s: %s: %s", name, key, fmt.Sprintf(text, args...)))
	}
	c.Listen = cmp.Or(c.Listen, defaultListen)
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		mistake("listen", "%q is not host:port; write it such as %s", c.Listen, defaultListen)
	}
	if c.Query == "" {
		mistake("query", "it is missing; name the query that finds the payments of orders: docs/payments.md")
	}
	if c.Stripe == nil && c.PayPal == nil && c.Alipay == nil && c.WeChatPay == nil {
		mistake("stripe", "there is no payment provider; add this section, or the section paypal, alipay or wechatpay")
	}
	if p := c.Stripe; p != nil {
		if p.Authorized != authorizedRelease && p.Authorized != authorizedPaid {
			mistake("stripe.authorized", "it is %q; write %s if the shop captures payments at once, or %s if an authorisation is the payment: docs/payments.md",
				p.Authorized, authorizedRelease, authorizedPaid)
		}
		if p.key, err = secret(p.KeyFile); err != nil {
			mistake("stripe.key_file", "%v", err)
		} else if err := p.checkURL(); err != nil {
			mistake("stripe.url", "%v", err)
		}
	}
	if p := c.PayPal; p != nil {
		if p.ClientID == "" {
			mistake("paypal.client_id", "it is missing; write the client id of your app at PayPal")
		}
		if p.secret, err = secret(p.SecretFile); err != nil {
			mistake("paypal.secret_file", "%v", err)
		}
	}
	if p := c.Alipay; p != nil {
		if p.AppID == "" {
			mistake("alipay.app_id", "it is missing; write the id of your app at Alipay")
		}
		if p.privateKey, err = keyOf(p.PrivateKeyFile, signed.PrivateKey); err != nil {
			mistake("alipay.private_key_file", "%v", err)
		}
		if p.publicKey, err = keyOf(p.AlipayPublicKeyFile, signed.PublicKey); err != nil {
			mistake("alipay.alipay_public_key_file", "%v", err)
		}
		if p.AppCertificateFile != "" || p.RootCertificateFile != "" {
			if p.appCertificate, err = secret(p.AppCertificateFile); err != nil {
				mistake("alipay.app_certificate_file", "%v", err)
			}
			if p.rootCertificates, err = secret(p.RootCertificateFile); err != nil {
				mistake("alipay.root_certificate_file", "%v", err)
			}
		}
	}
	if p := c.WeChatPay; p != nil {
		if p.MerchantID == "" {
			mistake("wechatpay.merchant_id", "it is missing; write your merchant id (mchid) at WeChat Pay")
		}
		if p.CertificateSerial == "" {
			mistake("wechatpay.certificate_serial", "it is missing; write what this prints after the equals sign: openssl x509 -noout -serial -in apiclient_cert.pem")
		}
		if p.privateKey, err = keyOf(p.PrivateKeyFile, signed.PrivateKey); err != nil {
			mistake("wechatpay.private_key_file", "%v", err)
		}
		if p.PublicKeyID == "" {
			mistake("wechatpay.public_key_id",
				"it is missing; write the id that WeChat Pay shows for its public key (PUB_KEY_ID_…), or the serial of the platform certificate")
		}
		if p.publicKey, err = keyOf(p.PublicKeyFile, signed.PublicKey); err != nil {
			mistake("wechatpay.public_key_file", "%v", err)
		}
	}
	return c, errors.Join(mistakes...)
}

// stripeURL is the address of Stripe itself.
const stripeURL = "https://api.stripe.com"

// checkURL returns an error unless calls go to Stripe, or to a test server with a key of the test mode: a live key
// must not leave for another server, whose answers would close or pay real orders.
func (p *stripeConfig) checkURL() error {
	if strings.TrimSuffix(p.URL, "/") == stripeURL {
		p.URL = "" // the default
	}
	if p.URL == "" {
		return nil
	}
	u, err := url.Parse(p.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%.80q is not the URL of a test server; write it such as http://127.0.0.1:12111", p.URL)
	}
	if !strings.HasPrefix(p.key, "sk_test_") && !strings.HasPrefix(p.key, "rk_test_") {
		return errors.New("it is a test server, and the key is not of Stripe's test mode; use a key sk_test_… or rk_test_…, or remove url")
	}
	return nil
}

// keyOf reads a file that holds a key, which parse must accept.
func keyOf[K any](name string, parse func(text string) (K, error)) (string, error) {
	text, err := secret(name)
	if err != nil {
		return "", err
	}
	if _, err := parse(text); err != nil {
		return "", fmt.Errorf("the file %s: %w", name, err)
	}
	return text, nil
}

// secret reads a file that holds a secret.
func secret(name string) (string, error) {
	if name == "" {
		return "", errors.New("it is missing; name the file that holds the secret")
	}
	data, err := ordercloseconfig.ReadFile(name, ordercloseconfig.MaxSecret)
	if err != nil {
		return "", err
	}
	if value := strings.TrimSpace(string(data)); value != "" {
		return value, nil
	}
	return "", fmt.Errorf("the file %s is empty; write the secret into it", name)
}
