package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// The variables of the web console.
const (
	EnvConsoleListen     = "ORDERCLOSE_CONSOLE_LISTEN"
	EnvConsoleBasePath   = "ORDERCLOSE_CONSOLE_BASE_PATH"
	EnvConsoleHosts      = "ORDERCLOSE_CONSOLE_HOSTS"
	EnvConsoleWebConfig  = "ORDERCLOSE_CONSOLE_WEB_CONFIG_FILE" // TLS and users; it is read again when it changes
	EnvConsoleProxies    = "ORDERCLOSE_CONSOLE_PROXIES"
	EnvConsoleUserHeader = "ORDERCLOSE_CONSOLE_USER_HEADER"
	EnvConsoleOperators  = "ORDERCLOSE_CONSOLE_OPERATORS" // names, or header:NAME
	EnvRunbook           = "ORDERCLOSE_RUNBOOK_URL"
	EnvConsolePrometheus = "ORDERCLOSE_CONSOLE_PROMETHEUS" // with labels as its query
)

// DefaultConsoleListen is the address of the console. It is on loopback: the operator decides
// who else may connect.
const DefaultConsoleListen = "127.0.0.1:9465"

// Console has the settings of the web console; webconsole.Settings is the same type. Printing or logging a Console
// shows no name of a file.
type Console struct {
	Listen   string   // host:port; default 127.0.0.1:9465
	BasePath string   // such as /orderclose, without a slash at the end; "": the console has the whole host
	Hosts    []string // names or addresses that the Host header may have besides that of Listen and the loopback's; no ports

	// WebConfigFile is a web configuration file of Prometheus: TLS, users with passwords, client
	// certificates. It is read again when it changes. "": plain HTTP, for the loopback and the proxies only.
	WebConfigFile string `json:"-"`

	// Proxies are addresses that the user trusts: they terminate TLS, and set UserHeader.
	Proxies []netip.Prefix

	// UserHeader is the header in which a proxy gives the name of the user. Then WebConfigFile has no
	// users with passwords.
	UserHeader string

	// The operators, who may change data; all other users are viewers. At most one of both is set. Neither: the console is read-only.
	RoleHeader string   // the header in which a proxy gives the role; needs UserHeader
	Operators  []string // names of users; of a user with a client certificate, the common name of its subject

	// Runbook is the address of your own copy of the runbook, with the same anchors. "": the console's page
	// of the runbook.
	Runbook string

	// Prometheus is the address of a Prometheus, from which the history on Now comes then, such as
	// http://prometheus:9090?job=orderclose: the query has labels of the processes of this pipeline. "": from the console's own memory.
	Prometheus string `json:"-"`
}

// ConsoleFromEnviron reads the settings of the console through lookup: os.LookupEnv, or a fake
// in tests. An empty variable counts as not set. The error names every wrong variable and
// never quotes a value, because a value may be a misplaced secret.
func ConsoleFromEnviron(lookup func(string) (string, bool)) (Console, error) {
	e := environment{lookup: lookup}
	c := Console{
		Listen:        e.listen(EnvConsoleListen, DefaultConsoleListen),
		BasePath:      strings.TrimRight(e.plain(EnvConsoleBasePath), "/"),
		Hosts:         e.consoleHosts(),
		WebConfigFile: e.plain(EnvConsoleWebConfig),
		Proxies:       e.consoleProxies(),
		UserHeader:    e.plain(EnvConsoleUserHeader),
		Runbook:       e.plain(EnvRunbook),
		Prometheus:    e.plain(EnvConsolePrometheus),
	}
	e.refuseReplaced("ORDERCLOSE_CONSOLE_")
	operators := e.plain(EnvConsoleOperators)
	if header, ok := strings.CutPrefix(operators, "header:"); ok {
		c.RoleHeader = cmp.Or(header, " ") // which is no name of a header
	} else {
		c.Operators = splitList(operators)
	}
	c.checkValues(&e)
	if err := errors.Join(e.errs...); err != nil {
		return Console{}, err
	}
	// Nobody has read the file yet: it may have all that is missing.
	named := c.WebConfigFile != ""
	if err := c.Check(WebConfig{Users: named && c.UserHeader == "", TLS: named}); err != nil {
		return Console{}, err
	}
	return c, nil
}

// WebConfig says what the file WebConfigFile has.
type WebConfig struct {
	Users        bool // users with passwords
	Certificates bool // a CA of client certificates, and that they are verified
	TLS          bool
}

// Check returns an error for each rule that the settings and the file break: off the loopback the
// console needs an identity and TLS, and actions need an identity everywhere.
func (c Console) Check(file WebConfig) error {
	var e environment
	identity := file.Users || file.Certificates || c.UserHeader != ""
	const choose = "write basic_auth_users or a client CA to the file of " + EnvConsoleWebConfig + ", or set " + EnvConsoleUserHeader
	e.refuse(file.Users && c.UserHeader != "", "the file of %s has basic_auth_users, and %s is set, but the console has one kind of identity; remove one",
		EnvConsoleWebConfig, EnvConsoleUserHeader)
	e.refuse(!c.OnLoopback() && !identity, "%s is not on the loopback, and everybody could open the console; %s, or listen on %s",
		EnvConsoleListen, choose, DefaultConsoleListen)
	e.refuse(!c.OnLoopback() && !file.TLS && len(c.Proxies) == 0,
		"%s is not on the loopback, and the network could read the console; write tls_server_config to the file of %s, or list the proxies that terminate TLS in %s",
		EnvConsoleListen, EnvConsoleWebConfig, EnvConsoleProxies)
	e.refuse(c.OnLoopback() && len(c.Proxies) > 0 && !identity, "%s is set, and everybody whom a proxy lets in could open the console; %s, or unset it",
		EnvConsoleProxies, choose)
	e.refuse(c.UserHeader != "" && len(c.Proxies) == 0,
		"%s is set, but no proxy may set the header; list the proxies' addresses in %s, such as 10.0.0.7,10.1.0.0/16",
		EnvConsoleUserHeader, EnvConsoleProxies)
	e.refuse(c.RoleHeader != "" && c.UserHeader == "", "%s names a header, but %s is not set; set both, or list the operators",
		EnvConsoleOperators, EnvConsoleUserHeader)
	e.refuse(len(c.Operators) > 0 && !identity, "%s is set, but nobody is known by name; %s", EnvConsoleOperators, choose)
	return errors.Join(e.errs...)
}

// ReadOnly reports whether nobody may change data.
func (c Console) ReadOnly() bool { return c.RoleHeader == "" && len(c.Operators) == 0 }

// OnLoopback reports whether only this machine can connect to Listen. A name other than
// localhost counts as outside, whatever it resolves to.
func (c Console) OnLoopback() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	return err == nil && isLoopback(host)
}

// Format prints what is set, without names of files, for every verb.
func (c Console) Format(f fmt.State, _ rune) {
	var set []string
	for _, v := range []struct{ name, value string }{{EnvConsoleWebConfig, c.WebConfigFile}, {EnvConsoleUserHeader, c.UserHeader}} {
		if v.value != "" {
			set = append(set, v.name)
		}
	}
	fmt.Fprintf(f, "listen %s%s, access by %s, %d proxies, read-only %v",
		c.Listen, c.BasePath, cmp.Or(strings.Join(set, " and "), "none"), len(c.Proxies), c.ReadOnly())
}

var (
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

func (c Console) checkValues(e *environment) {
	e.refuse(!basePath.MatchString(c.BasePath), "%s is not a path such as /orderclose; write letters, digits and - . _ ~ after each slash", EnvConsoleBasePath)
	_, ok := WebURL(c.Runbook)
	e.refuse(c.Runbook != "" && (!ok || strings.Contains(c.Runbook, "#")),
		"%s is not the address of a page; write it such as https://wiki.example/orderclose/runbook, without # and a section", EnvRunbook)
	u, ok := WebURL(c.Prometheus)
	e.refuse(c.Prometheus != "" && (!ok || u.Fragment != "" || !areLabels(u.RawQuery)),
		"%s is not the address of a Prometheus with labels; write it such as http://prometheus:9090?job=orderclose", EnvConsolePrometheus)
	for _, v := range []struct{ name, value, example string }{
		{EnvConsoleUserHeader, c.UserHeader, "X-Forwarded-User"}, {EnvConsoleOperators, c.RoleHeader, "header:X-Forwarded-Role"},
	} {
		e.refuse(v.value != "" && (!headerName.MatchString(v.value) || clientHeaders[http.CanonicalHeaderKey(v.value)]),
			"%s is not a header that a proxy can set for this purpose; write the name of the header such as %s", v.name, v.example)
	}
	e.refuse(c.UserHeader != "" && strings.EqualFold(c.UserHeader, c.RoleHeader), "%s and %s are the same header; name two",
		EnvConsoleUserHeader, EnvConsoleOperators)
}

// labelName is a label of Prometheus.
var labelName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// areLabels reports whether the query of a URL has nothing but labels.
func areLabels(query string) bool {
	values, err := url.ParseQuery(query)
	return err == nil && !slices.ContainsFunc(slices.Collect(maps.Keys(values)), func(name string) bool { return !labelName.MatchString(name) })
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

func (e *environment) consoleHosts() []string {
	hosts := splitList(e.plain(EnvConsoleHosts))
	for i, host := range hosts {
		ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
		switch {
		case err == nil:
			hosts[i] = ip.Unmap().String()
		case !hostName.MatchString(host):
			e.fail(fmt.Errorf("%s: entry %d is not the name of a host; write names without scheme and port, such as console.example,10.0.0.7", EnvConsoleHosts, i+1))
		}
	}
	return hosts
}

func (e *environment) consoleProxies() (proxies []netip.Prefix) {
	for i, entry := range splitList(e.plain(EnvConsoleProxies)) {
		prefix, err := netip.ParsePrefix(entry)
		if ip, single := netip.ParseAddr(entry); single == nil && ip.Zone() == "" {
			ip = ip.Unmap()
			prefix, err = netip.PrefixFrom(ip, ip.BitLen()), nil
		}
		switch {
		case err != nil:
			e.fail(fmt.Errorf("%s: entry %d is neither an address nor a range of addresses; write it such as 10.0.0.7 or 10.1.0.0/16", EnvConsoleProxies, i+1))
		case prefix.Bits() == 0:
			e.fail(fmt.Errorf("%s: entry %d has all addresses, so that everybody could claim to be anybody; list the addresses of your proxies only",
				EnvConsoleProxies, i+1))
		}
		proxies = append(proxies, prefix.Masked())
	}
	return proxies
}
