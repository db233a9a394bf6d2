package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
)

// The variables of the web console. Those of files name files that the console reads again
// when they change.
const (
	EnvConsoleListen   = "ORDERCLOSE_CONSOLE_LISTEN"
	EnvConsoleBasePath = "ORDERCLOSE_CONSOLE_BASE_PATH"
	EnvConsoleHosts    = "ORDERCLOSE_CONSOLE_HOSTS"
	EnvConsoleActions  = "ORDERCLOSE_CONSOLE_ACTIONS"
	EnvConsoleTLSCert  = "ORDERCLOSE_CONSOLE_TLS_CERT_FILE"
	EnvConsoleTLSKey   = "ORDERCLOSE_CONSOLE_TLS_KEY_FILE"
	EnvConsoleProxies  = "ORDERCLOSE_CONSOLE_PROXIES"

	// The identity: one of the first three.
	EnvConsoleTokens     = "ORDERCLOSE_CONSOLE_TOKENS_FILE"
	EnvConsolePasswords  = "ORDERCLOSE_CONSOLE_PASSWORDS_FILE"
	EnvConsoleUserHeader = "ORDERCLOSE_CONSOLE_USER_HEADER"
	EnvConsoleRoleHeader = "ORDERCLOSE_CONSOLE_ROLE_HEADER"
	EnvConsoleOperators  = "ORDERCLOSE_CONSOLE_OPERATORS"
)

// DefaultConsoleListen is the address of the console. It is on loopback: the operator decides
// who else may connect.
const DefaultConsoleListen = "127.0.0.1:9465"

// Console has the settings of the web console. pipeline.ConsoleSettings has the same fields, and
// describes them. Printing or logging a Console shows neither keys nor names of files.
type Console struct {
	Listen        string
	BasePath      string
	Hosts         []string
	Actions       bool
	TLS           *tls.Config `json:"-"`
	Proxies       []netip.Prefix
	TokensFile    string `json:"-"`
	PasswordsFile string `json:"-"`
	UserHeader    string
	RoleHeader    string
	Operators     []string
}

// ConsoleFromEnviron reads the settings of the console through lookup: os.LookupEnv, or a fake
// in tests. An empty variable counts as not set. The error names every wrong variable and
// never quotes a value, because a value may be a misplaced secret.
func ConsoleFromEnviron(lookup func(string) (string, bool)) (Console, error) {
	value := func(name string) string { v, _ := lookup(name); return v }
	c := Console{
		Listen:        value(EnvConsoleListen),
		BasePath:      strings.TrimRight(value(EnvConsoleBasePath), "/"),
		TokensFile:    value(EnvConsoleTokens),
		PasswordsFile: value(EnvConsolePasswords),
		UserHeader:    value(EnvConsoleUserHeader),
		RoleHeader:    value(EnvConsoleRoleHeader),
		Operators:     splitList(value(EnvConsoleOperators)),
	}
	if c.Listen == "" {
		c.Listen = DefaultConsoleListen
	}
	var errs [4]error
	c.Hosts, errs[0] = consoleHosts(value(EnvConsoleHosts))
	c.Actions, errs[1] = consoleActions(value(EnvConsoleActions))
	c.Proxies, errs[2] = consoleProxies(value(EnvConsoleProxies))
	c.TLS, errs[3] = consoleFiles.serve(lookup)
	if err := errors.Join(append(errs[:], c.checkValues())...); err != nil {
		return Console{}, err
	}
	if err := c.Check(); err != nil {
		return Console{}, err
	}
	return c, nil
}

// Check returns an error for each rule that the settings break: off the loopback the console
// needs an identity and TLS, and actions need an identity everywhere.
func (c Console) Check() error {
	var errs []error
	refuse := func(broken bool, format string, args ...any) {
		if broken {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	identities := c.identities()
	const choose = "set " + EnvConsoleTokens + ", " + EnvConsolePasswords + " or " + EnvConsoleUserHeader
	refuse(len(identities) > 1, "%s are set, but the console has one kind of identity; unset all but one", strings.Join(identities, " and "))
	refuse(!c.OnLoopback() && len(identities) == 0, "%s is not on the loopback, and everybody could open the console; %s, or listen on %s",
		EnvConsoleListen, choose, DefaultConsoleListen)
	refuse(!c.OnLoopback() && c.TLS == nil && len(c.Proxies) == 0,
		"%s is not on the loopback, and the network could read the console; set %s and %s, or list the proxies that terminate TLS in %s",
		EnvConsoleListen, EnvConsoleTLSCert, EnvConsoleTLSKey, EnvConsoleProxies)
	refuse(c.OnLoopback() && len(c.Proxies) > 0 && len(identities) == 0, "%s is set, and everybody whom a proxy lets in could open the console; %s, or unset it",
		EnvConsoleProxies, choose)
	refuse(c.Actions && len(identities) == 0, "%s is 1, but nobody can be an operator without an identity; %s", EnvConsoleActions, choose)
	refuse(c.UserHeader != "" && len(c.Proxies) == 0, "%s is set, but no proxy may set the header; list the proxies' addresses in %s, such as 10.0.0.7,10.1.0.0/16",
		EnvConsoleUserHeader, EnvConsoleProxies)
	refuse(c.RoleHeader != "" && c.UserHeader == "", "%s is set without %s; set both, or unset it", EnvConsoleRoleHeader, EnvConsoleUserHeader)
	refuse(c.RoleHeader != "" && len(c.Operators) > 0, "%s and %s are both set; unset one", EnvConsoleRoleHeader, EnvConsoleOperators)
	refuse(len(c.Operators) > 0 && c.PasswordsFile == "" && c.UserHeader == "", "%s belongs to %s and %s; a file of tokens has the role of each user itself",
		EnvConsoleOperators, EnvConsolePasswords, EnvConsoleUserHeader)
	refuse(c.Actions && (c.PasswordsFile != "" || c.UserHeader != "") && c.RoleHeader == "" && len(c.Operators) == 0,
		"%s is 1, but all users are viewers; list operators in %s", EnvConsoleActions, EnvConsoleOperators)
	return errors.Join(errs...)
}

// OnLoopback reports whether only this machine can connect to Listen. A name other than
// localhost counts as outside, whatever it resolves to.
func (c Console) OnLoopback() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// identities returns the variables of the kinds of identity that are set.
func (c Console) identities() []string {
	var set []string
	for _, v := range []struct{ name, value string }{
		{EnvConsoleTokens, c.TokensFile}, {EnvConsolePasswords, c.PasswordsFile}, {EnvConsoleUserHeader, c.UserHeader},
	} {
		if v.value != "" {
			set = append(set, v.name)
		}
	}
	return set
}

// String says what is set, without secrets.
func (c Console) String() string {
	identity := "none"
	if set := c.identities(); len(set) > 0 {
		identity = strings.Join(set, ", ")
	}
	return fmt.Sprintf("listen %s%s, identity %s, TLS %v, %d proxies, actions %v",
		c.Listen, c.BasePath, identity, c.TLS != nil, len(c.Proxies), c.Actions)
}

// GoString returns String, so that %#v shows no secret either.
func (c Console) GoString() string { return c.String() }

// LogValue returns String, for slog.
func (c Console) LogValue() slog.Value { return slog.StringValue(c.String()) }

var (
	consoleFiles = tlsFiles{cert: EnvConsoleTLSCert, key: EnvConsoleTLSKey}

	basePath   = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*$`)
	hostName   = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$`)
	headerName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*$`)
)

// clientHeaders are headers that a browser sets itself, or that say something else than who the
// user is.
var clientHeaders = map[string]bool{
	"Accept": true, "Authorization": true, "Connection": true, "Content-Length": true, "Content-Type": true, "Cookie": true, "Forwarded": true,
	"Host": true, "Origin": true, "Referer": true, "User-Agent": true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true,
}

func (c Console) checkValues() error {
	var errs []error
	if !hostPort(c.Listen, 0) {
		errs = append(errs, fmt.Errorf("%s is not host:port; write it such as %s", EnvConsoleListen, DefaultConsoleListen))
	}
	if !basePath.MatchString(c.BasePath) {
		errs = append(errs, fmt.Errorf("%s is not a path such as /orderclose; write letters, digits and - . _ ~ after each slash", EnvConsoleBasePath))
	}
	for _, v := range []struct{ name, value, example string }{
		{EnvConsoleUserHeader, c.UserHeader, "X-Forwarded-User"}, {EnvConsoleRoleHeader, c.RoleHeader, "X-Forwarded-Role"},
	} {
		if v.value != "" && (!headerName.MatchString(v.value) || clientHeaders[http.CanonicalHeaderKey(v.value)]) {
			errs = append(errs, fmt.Errorf("%s is not a header that a proxy can set for this purpose; write the name of the header such as %s", v.name, v.example))
		}
	}
	if c.UserHeader != "" && strings.EqualFold(c.UserHeader, c.RoleHeader) {
		errs = append(errs, fmt.Errorf("%s and %s are the same header; name two", EnvConsoleUserHeader, EnvConsoleRoleHeader))
	}
	return errors.Join(errs...)
}

// splitList splits a list at commas. Without entries it returns nil.
func splitList(value string) []string {
	var entries []string
	for entry := range strings.SplitSeq(value, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			entries = append(entries, entry)
		}
	}
	return entries
}

func consoleHosts(value string) ([]string, error) {
	hosts := splitList(value)
	for i, host := range hosts {
		ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
		switch {
		case err == nil:
			hosts[i] = ip.Unmap().String()
		case !hostName.MatchString(host):
			return nil, fmt.Errorf("%s: entry %d is not the name of a host; write names without scheme and port, such as console.example,10.0.0.7", EnvConsoleHosts, i+1)
		}
	}
	return hosts, nil
}

func consoleActions(value string) (bool, error) {
	if value != "" && value != "0" && value != "1" {
		return false, fmt.Errorf("%s is neither 1 nor 0", EnvConsoleActions)
	}
	return value == "1", nil
}

func consoleProxies(value string) ([]netip.Prefix, error) {
	var proxies []netip.Prefix
	for i, entry := range splitList(value) {
		prefix, err := netip.ParsePrefix(entry)
		if ip, single := netip.ParseAddr(entry); single == nil && ip.Zone() == "" {
			ip = ip.Unmap()
			prefix, err = netip.PrefixFrom(ip, ip.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: entry %d is neither an address nor a range of addresses; write it such as 10.0.0.7 or 10.1.0.0/16", EnvConsoleProxies, i+1)
		}
		if prefix.Bits() == 0 {
			return nil, fmt.Errorf("%s: entry %d has all addresses, so that everybody could claim to be anybody; list the addresses of your proxies only", EnvConsoleProxies, i+1)
		}
		proxies = append(proxies, prefix.Masked())
	}
	return proxies, nil
}

// serve returns the configuration of a listener; nil: no file is named.
func (f tlsFiles) serve(lookup func(string) (string, bool)) (*tls.Config, error) {
	cert, _ := lookup(f.cert)
	key, _ := lookup(f.key)
	if cert == "" && key == "" {
		return nil, nil
	}
	if cert == "" || key == "" {
		return nil, fmt.Errorf("%s and %s belong together; set both, or neither", f.cert, f.key)
	}
	pair, err := f.pair(cert, key)
	if err != nil {
		return nil, err
	}
	c := newTLS()
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair(), nil }
	return c, nil
}
