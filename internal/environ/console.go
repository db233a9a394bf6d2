package environ

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"

	"github.com/orderclose/orderclose/internal/config"
)

// The variables of the web console.
const (
	EnvConsoleListen     = "ORDERCLOSE_CONSOLE_LISTEN"
	EnvConsoleBasePath   = "ORDERCLOSE_CONSOLE_BASE_PATH"
	EnvConsoleHosts      = "ORDERCLOSE_CONSOLE_HOSTS"
	EnvConsoleProxies    = "ORDERCLOSE_CONSOLE_PROXIES"
	EnvConsoleUserHeader = "ORDERCLOSE_CONSOLE_USER_HEADER"
	EnvConsoleOperators  = "ORDERCLOSE_CONSOLE_OPERATORS" // names, or header:NAME
	EnvRunbook           = "ORDERCLOSE_RUNBOOK_URL"
)

// DefaultConsoleListen is the address of the console. It is on loopback: the operator decides
// who else may connect.
const DefaultConsoleListen = "127.0.0.1:9465"

// Console has the settings of the web console; webconsole.Settings is the same type.
type Console struct {
	Listen   string   // host:port; default 127.0.0.1:9465
	BasePath string   // such as /orderclose, without a slash at the end; "": the console has the whole host
	Hosts    []string // names or addresses that the Host header may have besides that of Listen and the loopback's; no ports

	// Proxies are addresses that the user trusts: they terminate TLS, and set UserHeader.
	Proxies []netip.Prefix

	// UserHeader is the header in which a proxy gives the name of the user. "": nobody is known, and the loopback may look.
	UserHeader string

	// The operators, who may change data; all other users are viewers. At most one of both is set. Neither: the console is read-only.
	RoleHeader string   // the header in which a proxy gives the role; needs UserHeader
	Operators  []string // names of users

	// Runbook is the address of your own copy of the runbook, with the same anchors. "": the console's page
	// of the runbook.
	Runbook string
}

// ReadConsole reads the settings of the console through lookup: os.LookupEnv, or a fake
// in tests. An empty variable counts as not set. The error names every wrong variable and
// never quotes a value, because a value may be a misplaced secret.
func ReadConsole(lookup func(string) (string, bool)) (Console, error) {
	e := environment{lookup: lookup}
	c := Console{
		Listen:     e.listen(EnvConsoleListen, DefaultConsoleListen),
		BasePath:   strings.TrimRight(e.plain(EnvConsoleBasePath), "/"),
		Hosts:      e.consoleHosts(),
		Proxies:    e.consoleProxies(),
		UserHeader: e.plain(EnvConsoleUserHeader),
		Runbook:    e.plain(EnvRunbook),
	}
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
	return c, c.Check()
}

// Check returns an error for each rule that the settings break: off the loopback the console needs proxies that terminate TLS and name the
// user, and actions need a name everywhere.
func (c Console) Check() error {
	var e environment
	e.refuse(!OnLoopback(c.Listen) && (c.UserHeader == "" || len(c.Proxies) == 0),
		"%s is not on the loopback, and everybody could open the console; let a proxy sign users in, and set %s and %s, or listen on %s",
		EnvConsoleListen, EnvConsoleProxies, EnvConsoleUserHeader, DefaultConsoleListen)
	e.refuse(OnLoopback(c.Listen) && len(c.Proxies) > 0 && c.UserHeader == "",
		"%s is set, and everybody whom a proxy lets in could open the console; set %s, or unset it", EnvConsoleProxies, EnvConsoleUserHeader)
	e.refuse(OnLoopback(c.Listen) && c.UserHeader != "" && len(c.Proxies) == 0,
		"%s is set, but no proxy may set the header; list the proxies' addresses in %s, such as 10.0.0.7,10.1.0.0/16",
		EnvConsoleUserHeader, EnvConsoleProxies)
	e.refuse(!c.ReadOnly() && c.UserHeader == "", "%s is set, but nobody is known by name; set %s", EnvConsoleOperators, EnvConsoleUserHeader)
	return errors.Join(e.errs...)
}

// ReadOnly reports whether nobody may change data.
func (c Console) ReadOnly() bool { return c.RoleHeader == "" && len(c.Operators) == 0 }

// OnLoopback reports whether only this machine can connect to a listener. A name other than
// localhost counts as outside, whatever it resolves to.
func OnLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	return err == nil && config.IsLoopback(host)
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
	_, ok := config.WebURL(c.Runbook)
	e.refuse(c.Runbook != "" && (!ok || strings.Contains(c.Runbook, "#")),
		"%s is not the address of a page; write it such as https://wiki.example/orderclose/runbook, without # and a section", EnvRunbook)
	for _, v := range []struct{ name, value, example string }{
		{EnvConsoleUserHeader, c.UserHeader, "X-Forwarded-User"}, {EnvConsoleOperators, c.RoleHeader, "header:X-Forwarded-Role"},
	} {
		e.refuse(v.value != "" && (!headerName.MatchString(v.value) || clientHeaders[http.CanonicalHeaderKey(v.value)]),
			"%s is not a header that a proxy can set for this purpose; write the name of the header such as %s", v.name, v.example)
	}
	e.refuse(c.UserHeader != "" && strings.EqualFold(c.UserHeader, c.RoleHeader), "%s and %s are the same header; name two",
		EnvConsoleUserHeader, EnvConsoleOperators)
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
