package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"aead.dev/minisign"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// The owner's key signs the checksums, encrypted or not, and a person verifies them with the public key. Without a key there is no signature.
func TestSignature_IsThatOfTheOwnersKey(t *testing.T) {
	public, private, err := minisign.GenerateKey(nil)
	must.Do(t, err)
	r, sums := &release{version: tag}, file{name: "SHA256SUMS", data: []byte("0123  a.tar.gz\n")}
	none := must.Get(r.signature(sums))(t)
	expect.Equal(t, len(none), 0, "there is a signature without a key")
	for name, text := range map[string][]byte{
		"plain":     must.Get(private.MarshalText())(t),
		"encrypted": must.Get(minisign.EncryptKey("secret", private))(t),
	} {
		key := filepath.Join(t.TempDir(), "key")
		must.Do(t, os.WriteFile(key, text, 0o600))
		t.Setenv(envKey, key)
		t.Setenv(envPassword, "secret")
		signed := must.Get(r.signature(sums))(t)
		expect.That(t, signed[0].name == "SHA256SUMS.minisig" && verifies(public, sums.data, signed[0].data), "%s: %s", name, signed[0].data)
		expect.That(t, !verifies(public, append(sums.data, 'x'), signed[0].data), "%s: other checksums are signed too", name)
		again := must.Get(r.signature(sums))(t)
		expect.That(t, bytes.Equal(again[0].data, signed[0].data), "%s: two signatures differ", name)
		t.Setenv(envPassword, "wrong")
		_, err := r.signature(sums)
		expect.That(t, (err != nil) == (name == "encrypted"), "%s: with a wrong password: %v", name, err)
	}
	t.Setenv(envKey, "no such file")
	expect.That(t, expect.Err(r.signature(sums)) != nil, "a key that is not there is accepted")
}

func verifies(key minisign.PublicKey, data, signature []byte) bool {
	r := minisign.NewReader(bytes.NewReader(data))
	var b bytes.Buffer
	_, _ = b.ReadFrom(r)
	return r.Verify(key, signature)
}
