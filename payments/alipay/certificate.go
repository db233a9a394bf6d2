package alipay

import (
	"crypto/md5" // names certificates, as Alipay wants; no secret depends on it
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"strings"

	"github.com/orderclose/orderclose/payments/internal/signed"
)

// checkAppCertificate returns an error if text is not the certificate of the app, in PEM, whose key is the public key of
// privateKey.
func checkAppCertificate(text, privateKey string) error {
	key, err := signed.PrivateKey(privateKey)
	if err != nil {
		return err
	}
	found := certificates(text)
	if len(found) != 1 {
		return errors.New("it is not a certificate in PEM; write the content of appCertPublicKey_….crt")
	}
	if public, ok := found[0].PublicKey.(*rsa.PublicKey); !ok || !public.Equal(&key.PublicKey) {
		return errors.New("it does not belong to the private key; write the certificate that Alipay made for the app")
	}
	return nil
}

// checkRootCertificates returns an error if text has no certificate in PEM that is signed with RSA.
func checkRootCertificates(text string) error {
	if serials(text) == "" {
		return errors.New("it has no certificate in PEM that is signed with RSA; write the content of alipayRootCert.crt")
	}
	return nil
}

// serials returns the names that Alipay gives to the certificates in text that are signed with RSA, joined by _.
func serials(text string) string {
	var names []string
	for _, c := range certificates(text) {
		switch c.SignatureAlgorithm {
		case x509.SHA1WithRSA, x509.SHA256WithRSA, x509.SHA384WithRSA, x509.SHA512WithRSA:
			sum := md5.Sum([]byte(c.Issuer.String() + c.SerialNumber.String()))
			names = append(names, hex.EncodeToString(sum[:]))
		}
	}
	return strings.Join(names, "_")
}

// certificates returns the certificates in text that Go can read. Alipay's root certificates contain some
// of a Chinese algorithm, which it cannot.
func certificates(text string) (found []*x509.Certificate) {
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return found
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			found = append(found, c)
		}
	}
}
