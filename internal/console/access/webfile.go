package access

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"
	"golang.org/x/crypto/bcrypt"

	"github.com/orderclose/orderclose/internal/config"
)

const (
	// rereadInterval is for how long the content of the file is used before it is read again. A user
	// who is removed from the file is refused after that time.
	rereadInterval = time.Second
	// maxCost is the largest cost of bcrypt. A check of cost 10 takes about 50 ms of a core, and
	// each step doubles it.
	maxCost = 14
)

// webFile is the web configuration file. It is read again when it is used, with the certificates that it
// names. While one of them cannot be read, or has a mistake, the last valid content is used, and the log has
// the error once. Create it with openWebFile. It is safe for concurrent use.
type webFile struct {
	settings config.Console
	logger   *slog.Logger

	mu     sync.Mutex
	read   time.Time // when the file was read last
	now    *webConfig
	failed string // the error of the last read; "": there was none
}

// webConfig is the content of the file at one time.
type webConfig struct {
	data         []byte
	users        map[string]string // hashes of bcrypt by name
	accepted     *sync.Map         // sums of the passwords that fit these hashes, by name
	certificates bool              // client certificates are verified
	tls          *tls.Config       // nil: plain HTTP
}

// openWebFile reads the file of the settings, and checks the settings with it. Without a file nobody has a
// password. The error quotes nothing of the file.
func openWebFile(s config.Console, logger *slog.Logger) (*webFile, error) {
	f := &webFile{settings: s, logger: logger}
	if s.WebConfigFile == "" {
		f.now = &webConfig{}
		return f, s.Check(config.WebConfig{})
	}
	return f, f.update()
}

// get returns the last valid content.
func (f *webFile) get() *webConfig {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.settings.WebConfigFile == "" || time.Since(f.read) < rereadInterval {
		return f.now
	}
	before := f.failed
	switch err := f.update(); {
	case err != nil && err.Error() != before:
		f.failed = err.Error()
		f.logger.Error("users and TLS rejected, keeping the previous ones", "err", err)
	case err == nil && before != "":
		f.failed = ""
		f.logger.Info("users and TLS valid again", "variable", config.EnvConsoleWebConfig)
	}
	return f.now
}

// update reads the file. The certificates may have changed although the file has not.
func (f *webFile) update() error {
	f.read = time.Now()
	data, err := readFile(f.settings.WebConfigFile)
	if err != nil {
		return fmt.Errorf("%s names a file that cannot be read: %w; mount the file there or unset the variable", config.EnvConsoleWebConfig, err)
	}
	next, err := parseWebConfig(data, filepath.Dir(f.settings.WebConfigFile))
	if err != nil {
		return fmt.Errorf("%s: %w", config.EnvConsoleWebConfig, err)
	}
	if err := f.settings.Check(config.WebConfig{Users: len(next.users) > 0, Certificates: next.certificates, TLS: next.tls != nil}); err != nil {
		return err
	}
	if f.now != nil {
		// How users are known, and whether the listener has TLS, was decided at the start.
		if was := f.now; (was.tls == nil) != (next.tls == nil) || (len(was.users) == 0) != (len(next.users) == 0) || was.certificates != next.certificates {
			return fmt.Errorf("%s: TLS, users and the CA of client certificates can be changed, but not begun or ended, while the console runs; restart it",
				config.EnvConsoleWebConfig)
		}
		if bytes.Equal(data, f.now.data) {
			next.accepted = f.now.accepted
		} else {
			f.logger.Info("users or TLS changed", "variable", config.EnvConsoleWebConfig)
		}
	}
	f.now = next
	return nil
}

var (
	yamlLine   = regexp.MustCompile(`line \d+`)
	bcryptHash = regexp.MustCompile(`^\$2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{53}$`)

	errHash = errors.New("the value is no hash of bcrypt; htpasswd -nB -C 10 NAME prints NAME:HASH")
	errCost = errors.New("bcrypt does not know the cost, or it is larger than 14 and a check takes seconds; htpasswd -nB -C 10 NAME prints another one")
	errName = errors.New("the name is empty, has more than 200 bytes, or letters that cannot be printed")
	errOnly = errors.New("rate_limit and http_server_config.headers are not for the console, which has its own limits and headers; remove them")
	errSANs = errors.New("client_allowed_sans needs client_auth_type: RequireAndVerifyClientCert")
	errCA   = errors.New("client certificates are verified, but there is neither client_ca_file nor client_ca; name the CA that signs them")
)

// parseWebConfig reads a web configuration file of Prometheus. dir is the folder of relative paths. The errors
// name lines, and quote nothing.
func parseWebConfig(data []byte, dir string) (*webConfig, error) {
	file := web.Config{ // with the defaults of the toolkit
		TLSConfig:  web.TLSConfig{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13},
		HTTPConfig: web.HTTPConfig{HTTP2: true},
	}
	var at struct { // the same users with their lines
		Users map[string]yaml.Node `yaml:"basic_auth_users"`
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil && err != io.EOF {
		lines := slices.Compact(yamlLine.FindAllString(err.Error(), -1)) // the error may quote a secret
		return nil, fmt.Errorf("%s: there is no such key, or its value is not valid; docs/security.md has an example", cmp.Or(strings.Join(lines, ", "), "the file"))
	}
	if err := yaml.Unmarshal(data, &at); err != nil {
		return nil, errors.New("basic_auth_users has more than names and hashes")
	}
	if file.RateLimiterConfig != (web.RateLimiterConfig{}) || len(file.HTTPConfig.Header) > 0 {
		return nil, errOnly
	}
	c := &webConfig{data: data, users: map[string]string{}, accepted: new(sync.Map)}
	var errs []error
	for name, hash := range at.Users {
		if err := checkUser(name, hash.Value); err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", hash.Line, err))
		}
		c.users[name] = hash.Value
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, c.serveTLS(&file, dir)
}

func checkUser(name, hash string) error {
	if !bcryptHash.MatchString(hash) {
		return errHash
	}
	if cost, err := bcrypt.Cost([]byte(hash)); err != nil || cost > maxCost {
		return errCost
	}
	if !validName(name) {
		return errName
	}
	return nil
}

// serveTLS reads the certificates that the file names.
func (c *webConfig) serveTLS(file *web.Config, dir string) error {
	t := &file.TLSConfig
	if !t.IsEnabled() {
		return nil
	}
	quoted := []string{t.TLSCertPath, t.ClientCAs, t.TLSKeyPath, string(t.TLSKey), t.ClientAuth} // what an error may show
	t.SetDirectory(dir)
	var err error
	if c.tls, err = web.ConfigToTLSConfig(t); err != nil {
		text := err.Error()
		for _, secret := range append([]string{t.TLSCertPath, t.ClientCAs, t.TLSKeyPath}, quoted...) {
			if secret != "" {
				text = strings.ReplaceAll(text, secret, "…")
			}
		}
		return fmt.Errorf("tls_server_config: %s", text)
	}
	// The toolkit reads the pair at each handshake, and fails while the files are being replaced.
	pair, err := c.tls.GetCertificate(nil)
	if err != nil {
		return errors.New("tls_server_config: certificate and key have just changed and do not match")
	}
	c.tls.Certificates, c.tls.GetCertificate = []tls.Certificate{*pair}, nil
	c.tls.NextProtos = []string{"h2", "http/1.1"}
	if !file.HTTPConfig.HTTP2 {
		c.tls.NextProtos = []string{"http/1.1"}
	}
	if c.tls.VerifyPeerCertificate != nil && c.tls.ClientAuth != tls.RequireAndVerifyClientCert { // it panics without a certificate
		return errSANs
	}
	c.certificates = c.tls.ClientAuth >= tls.VerifyClientCertIfGiven
	// TLS does not check the SANs of a resumed connection. With tickets, a user whose SAN was removed could
	// connect for 7 days more.
	c.tls.SessionTicketsDisabled = c.tls.VerifyPeerCertificate != nil
	if c.certificates && c.tls.ClientCAs == nil { // otherwise each CA that the system trusts could name operators
		return errCA
	}
	return nil
}

// readFile reads a file. The error does not quote the name, which may be a misplaced secret.
func readFile(name string) ([]byte, error) {
	data, err := config.ReadFile(name, config.MaxFile)
	if wrapped, ok := errors.AsType[*fs.PathError](err); ok {
		err = wrapped.Err
	}
	return data, err
}
