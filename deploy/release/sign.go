package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"aead.dev/minisign"
)

// The variables of the key that signs a release: its file, as minisign -G writes it, and its password.
const (
	envKey      = "RELEASE_KEY"
	envPassword = "RELEASE_KEY_PASSWORD"
)

// signature returns the signature of the checksums, as minisign writes it, with the key that the environment names. Without a key there
// is none, and it says so on stderr.
func (r *release) signature(sums file) ([]file, error) {
	name := os.Getenv(envKey)
	if name == "" {
		fmt.Fprintf(os.Stderr, "%s is not signed: %s names no key of minisign\n", sums.name, envKey)
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", envKey, err)
	}
	var key minisign.PrivateKey
	if minisign.IsEncrypted(text) {
		key, err = minisign.DecryptKey(os.Getenv(envPassword), text)
	} else {
		err = key.UnmarshalText(text)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s is no secret key of minisign, or %s is not its password: %w", envKey, name, envPassword, err)
	}
	signed := minisign.NewReader(bytes.NewReader(sums.data))
	if _, err := io.Copy(io.Discard, signed); err != nil {
		return nil, err
	}
	// The comment has no time: two releases of a commit have the same bytes.
	data := signed.SignWithComments(key, "orderclose "+r.version, "signature of "+sums.name+" of orderclose "+r.version)
	return []file{{name: sums.name + ".minisig", data: data}}, nil
}
