package config_test

import (
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/expect"
)

func TestConsoleFromEnviron_ReadsEveryVariable(t *testing.T) {
	base := environ{
		"ORDERCLOSE_CONSOLE_LISTEN": ":443", "ORDERCLOSE_CONSOLE_BASE_PATH": "/shop/orderclose/",
		"ORDERCLOSE_RUNBOOK_URL":   "https://wiki.example/runbook",
		"ORDERCLOSE_CONSOLE_HOSTS": "console.example, 10.0.0.5,[fd00:0::5]", "ORDERCLOSE_CONSOLE_PROXIES": "10.0.0.7, 10.1.2.3/16,fd00::/8, ::ffff:10.0.0.8",
	}
	want := config.Console{
		Listen: ":443", BasePath: "/shop/orderclose", Runbook: "https://wiki.example/runbook",
		Hosts: []string{"console.example", "10.0.0.5", "fd00::5"},
		Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.7/32"), netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8"),
			netip.MustParsePrefix("10.0.0.8/32")},
	}
	for _, row := range []struct {
		env  environ
		want func(*config.Console)
	}{
		{environ{"ORDERCLOSE_CONSOLE_USER_HEADER": "X-User", "ORDERCLOSE_CONSOLE_OPERATORS": "ann, 李,"},
			func(c *config.Console) { c.UserHeader, c.Operators = "X-User", []string{"ann", "李"} }},
		{environ{"ORDERCLOSE_CONSOLE_USER_HEADER": "X-User", "ORDERCLOSE_CONSOLE_OPERATORS": "header:X-Role"},
			func(c *config.Console) { c.UserHeader, c.RoleHeader = "X-User", "X-Role" }},
	} {
		env, want := maps.Clone(base), want
		maps.Copy(env, row.env)
		row.want(&want)
		got, err := config.ConsoleFromEnviron(env.lookup)
		if err != nil {
			t.Errorf("%v: %v", row.env, err)
			continue
		}
		expect.Equal(t, cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })), "", "%v (-want +got):\n", row.env)
	}
}

func TestConsoleFromEnviron_MissingVariablesMeanTheLoopbackReadOnly(t *testing.T) {
	for _, env := range []environ{{}, {"ORDERCLOSE_CONSOLE_LISTEN": "", "ORDERCLOSE_CONSOLE_BASE_PATH": "/", "ORDERCLOSE_CONSOLE_HOSTS": " "}} {
		got, err := config.ConsoleFromEnviron(env.lookup)
		diff := cmp.Diff(config.Console{Listen: "127.0.0.1:9465"}, got)
		expect.That(t, err == nil && diff == "", "error %v (-want +got):\n%s", err, diff)
	}
}

func TestConsoleFromEnviron_ErrorsSayWhatToDoAndShowNoSecret(t *testing.T) {
	const (
		listen, basePath, hosts = "ORDERCLOSE_CONSOLE_LISTEN", "ORDERCLOSE_CONSOLE_BASE_PATH", "ORDERCLOSE_CONSOLE_HOSTS"
		proxies                 = "ORDERCLOSE_CONSOLE_PROXIES"
		runbook                 = "ORDERCLOSE_RUNBOOK_URL"
		user, operators         = "ORDERCLOSE_CONSOLE_USER_HEADER", "ORDERCLOSE_CONSOLE_OPERATORS"

		everybody = listen + " is not on the loopback, and everybody could open the console; let a proxy sign users in, and set " + proxies + " and " + user +
			", or listen on 127.0.0.1:9465"
		nobody = operators + " is set, but nobody is known by name; set " + user
	)
	for _, row := range []struct {
		env  environ
		want string
	}{
		{environ{listen: "hunter2"}, listen + " is not host:port; write it such as 127.0.0.1:9465"},
		{environ{listen: "127.0.0.1:70000"}, listen + " is not host:port; write it such as 127.0.0.1:9465"},
		{environ{basePath: "hunter2"}, basePath + " is not a path such as /orderclose; write letters, digits and - . _ ~ after each slash"},
		{environ{basePath: "/a//b"}, basePath + " is not a path such as /orderclose; write letters, digits and - . _ ~ after each slash"},
		{environ{basePath: "/a/../b"}, basePath + " is not a path such as /orderclose; write letters, digits and - . _ ~ after each slash"},
		{environ{basePath: "/a;b"}, basePath + " is not a path such as /orderclose; write letters, digits and - . _ ~ after each slash"},
		{environ{runbook: "hunter2"}, runbook + " is not the address of a page; write it such as https://wiki.example/orderclose/runbook, without # and a section"},
		{environ{runbook: "javascript://hunter2/x"}, runbook + " is not the address of a page; write it such as https://wiki.example/orderclose/runbook, " +
			"without # and a section"},
		{environ{runbook: "https://hunter2/x#y"}, runbook + " is not the address of a page; write it such as https://wiki.example/orderclose/runbook, " +
			"without # and a section"},
		{environ{hosts: "a,https://hunter2"}, hosts + ": entry 2 is not the name of a host; write names without scheme and port, such as console.example,10.0.0.7"},
		{environ{hosts: "hunter2:80"}, hosts + ": entry 1 is not the name of a host; write names without scheme and port, such as console.example,10.0.0.7"},
		{environ{hosts: "*.hunter2"}, hosts + ": entry 1 is not the name of a host; write names without scheme and port, such as console.example,10.0.0.7"},
		{environ{proxies: "10.0.0.7,hunter2"}, proxies + ": entry 2 is neither an address nor a range of addresses; write it such as 10.0.0.7 or 10.1.0.0/16"},
		{environ{proxies: "10.0.0.7:80"}, proxies + ": entry 1 is neither an address nor a range of addresses; write it such as 10.0.0.7 or 10.1.0.0/16"},
		{environ{proxies: "10.0.0.7/33"}, proxies + ": entry 1 is neither an address nor a range of addresses; write it such as 10.0.0.7 or 10.1.0.0/16"},
		{environ{proxies: "fe80::1%eth0"}, proxies + ": entry 1 is neither an address nor a range of addresses; write it such as 10.0.0.7 or 10.1.0.0/16"},
		{environ{proxies: "0.0.0.0/0"}, proxies + ": entry 1 has all addresses, so that everybody could claim to be anybody; list the " +
			"addresses of your proxies only"},
		{environ{proxies: "::/0"}, proxies + ": entry 1 has all addresses, so that everybody could claim to be anybody; list the addresses of your proxies only"},
		{environ{user: "hunter 2", proxies: "10.0.0.7"}, user + " is not a header that a proxy can set for this purpose; write the name of the header " +
			"such as X-Forwarded-User"},
		{environ{user: "cookie", proxies: "10.0.0.7"}, user + " is not a header that a proxy can set for this purpose; write the name of the header " +
			"such as X-Forwarded-User"},
		{environ{user: "x-user", operators: "header:X-User", proxies: "10.0.0.7"}, user + " and " + operators + " are the same header; name two"},
		{environ{user: "X-User", operators: "header:a:b", proxies: "10.0.0.7"},
			operators + " is not a header that a proxy can set for this purpose; write the name of the header such as header:X-Forwarded-Role"},
		{environ{user: "X-User", operators: "header:", proxies: "10.0.0.7"},
			operators + " is not a header that a proxy can set for this purpose; write the name of the header such as header:X-Forwarded-Role"},

		{environ{listen: "0.0.0.0:9465", proxies: "10.0.0.7"}, everybody},
		{environ{listen: "0.0.0.0:9465", user: "X-User"}, everybody},
		{environ{listen: "console.example:9465", operators: "hunter2"}, everybody + "\n" + nobody},
		{environ{proxies: "127.0.0.1"}, proxies + " is set, and everybody whom a proxy lets in could open the console; set " + user + ", or unset it"},
		{environ{user: "X-User"}, user + " is set, but no proxy may set the header; list the proxies' addresses in " + proxies + ", such as 10.0.0.7,10.1.0.0/16"},
		{environ{operators: "header:X-Role"}, nobody},
		{environ{operators: "hunter2"}, nobody},
	} {
		got, err := config.ConsoleFromEnviron(row.env.lookup)
		if err == nil {
			t.Errorf("%v: accepted as %v", row.env, got)
		} else if diff := cmp.Diff(row.want, err.Error()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", row.env, diff)
		} else if strings.Contains(err.Error(), "hunter") {
			t.Errorf("%v: the error shows a secret: %v", row.env, err)
		}
	}
}

func TestConsole_KnowsTheLoopback(t *testing.T) {
	for listen, want := range map[string]bool{
		"127.0.0.1:9465": true, "127.8.8.8:1": true, "[::1]:9465": true, "localhost:0": true, "LOCALHOST:0": true, "[::ffff:127.0.0.1]:1": true,
		"0.0.0.0:9465": false, ":9465": false, "[::]:9465": false, "10.0.0.1:1": false, "localhost.example:1": false, "127.0.0.1.example:1": false,
		"": false, "127.0.0.1": false,
	} {
		expect.Equal(t, (config.Console{Listen: listen}).OnLoopback(), want, "%q is on the loopback", listen)
	}
}

func TestPlainRedis_NamesAPasswordThatANetworkSees(t *testing.T) {
	for url, want := range map[string]bool{
		"redis://u:p@redis.internal:6379/0": true, "redis://:p@10.0.0.7": true, "redis://s1?addr=s2:1&master_name=m&password=p": true,
		"redis://redis.internal": false, "redis://u:p@127.0.0.1": false, "redis://u:p@localhost": false, "rediss://u:p@redis.internal": false,
		"unix:///run/redis.sock": false,
	} {
		expect.Equal(t, config.PlainRedis(url), want, "%s", url)
	}
}
