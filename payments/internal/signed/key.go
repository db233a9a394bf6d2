package signed

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

const leastBits = 2048 // of a key, which both providers require

// PrivateKey returns the key of text: PEM in the format PKCS#1 or PKCS#8, or the base64 of either, as
// Alipay's tool writes it. The error says what to write instead, and nothing of the key.
func PrivateKey(text string) (*rsa.PrivateKey, error) {
	kind, der, err := decode(text)
	if err != nil {
		return nil, err
	}
	if strings.Contains(text, "ENCRYPTED") {
		return nil, errors.New("it is encrypted with a password; write it without one: openssl pkey -in KEY -out FILE")
	}
	if kind == "CERTIFICATE" {
		return nil, errors.New("it is a certificate; write the private key that belongs to it")
	}
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key, checkBits(key.N.BitLen())
	}
	if key, err := x509.ParsePKCS8PrivateKey(der); err == nil {
		if key, ok := key.(*rsa.PrivateKey); ok {
			return key, checkBits(key.N.BitLen())
		}
		return nil, fmt.Errorf("it is a private key of another kind (%T); write an RSA key", key)
	}
	if _, err := PublicKey(text); err == nil {
		return nil, errors.New("it is a public key; write the private key that belongs to it")
	}
	return nil, errors.New("it is no private RSA key in the format PKCS#1 or PKCS#8")
}

// PublicKey returns the key of text: PEM of a public key or of a certificate, or base64, as Alipay shows it.
func PublicKey(text string) (*rsa.PublicKey, error) {
	kind, der, err := decode(text)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(kind, "PRIVATE KEY") {
		return nil, errors.New("it is a private key; write the public key of the provider")
	}
	if key, err := x509.ParsePKCS1PublicKey(der); err == nil {
		return key, checkBits(key.N.BitLen())
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		if cert, err := x509.ParseCertificate(der); err == nil {
			parsed = cert.PublicKey
		}
	}
	key, ok := parsed.(*rsa.PublicKey)
	if !ok {
		return nil, errors.New("it is neither a public RSA key nor a certificate with one; write the public key of the provider")
	}
	return key, checkBits(key.N.BitLen())
}

// decode returns the type and the content of PEM. Base64 without PEM has no type.
func decode(text string) (kind string, der []byte, err error) {
	if block, _ := pem.Decode([]byte(text)); block != nil {
		return block.Type, block.Bytes, nil
	}
	der, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return "", nil, errors.New("it is neither PEM (-----BEGIN …) nor base64; copy the whole key")
	}
	return "", der, nil
}

func checkBits(bits int) error {
	if bits < leastBits {
		return fmt.Errorf("it has %d bits; make a key of %d bits", bits, leastBits)
	}
	return nil
}

// Keys are the key of the shop, which signs requests, and the key of the provider, which has signed the responses.
type Keys struct {
	shop     *rsa.PrivateKey
	provider *rsa.PublicKey
}

// NewKeys returns the keys of both texts. shop and provider are their names in errors.
func NewKeys(shop, shopText, provider, providerText string) (Keys, error) {
	private, err := PrivateKey(shopText)
	if err != nil {
		return Keys{}, fmt.Errorf("%s: %w", shop, err)
	}
	public, err := PublicKey(providerText)
	if err != nil {
		return Keys{}, fmt.Errorf("%s: %w", provider, err)
	}
	if public.Equal(&private.PublicKey) {
		return Keys{}, fmt.Errorf("%s: it is your own public key, of the %s; write the one that the provider shows you", provider, shop)
	}
	return Keys{private, public}, nil
}

// Sign returns the signature of a request in base64: RSA with SHA-256.
func (k Keys) Sign(message string) (string, error) { return Sign(k.shop, message) }

// Sign returns the signature of message in base64.
func Sign(key *rsa.PrivateKey, message string) (string, error) {
	sum := sha256.Sum256([]byte(message))
	signature, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	return base64.StdEncoding.EncodeToString(signature), err
}

// Verify reports whether the provider has signed message. signature is in base64.
func (k Keys) Verify(message, signature string) bool {
	raw, err := base64.StdEncoding.DecodeString(signature)
	sum := sha256.Sum256([]byte(message))
	return err == nil && rsa.VerifyPKCS1v15(k.provider, crypto.SHA256, sum[:], raw) == nil
}
