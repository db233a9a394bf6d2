// Package environ reads the environment: the addresses of servers, the secrets for them, the settings of the web console, and the format of logs.
//
//	environ.go   servers and secrets; the format of logs
//	security.go  TLS and logins
//	console.go   the web console
package environ

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/kafka"
	"github.com/orderclose/orderclose/internal/signature"
	"github.com/orderclose/orderclose/internal/text"
)

// The environment variables. A mounted file may hold the DSN, or the URL of Redis: the variable with _FILE appended names
// the file.
const (
	EnvBrokers = "ORDERCLOSE_KAFKA_BROKERS"
	EnvDSN     = "ORDERCLOSE_DB_DSN"
	EnvRedis   = "ORDERCLOSE_REDIS_URL"
	EnvListen  = "ORDERCLOSE_LISTEN"

	// EnvInstance names this process among all others, for static memberships in consumer groups.
	EnvInstance = "ORDERCLOSE_INSTANCE"
)

// DefaultListen is the address of the listener for metrics and health. It is on
// loopback: the operator decides who else may connect.
const DefaultListen = "127.0.0.1:9464"

// Servers holds the addresses of the servers and the secrets for them. A value that is
// not set is empty; Require reports it. Printing or logging a Servers hides the
// passwords in the DSN and the URL.
type Servers struct {
	Brokers  []string       // host:port of Kafka
	Kafka    kafka.Security `json:"-"` // of the connections to the brokers
	DSN      string         `json:"-"` // of the database
	RedisURL string         `json:"-"`
	Listen   string         // host:port of the metrics and health listener
	Instance string         // of the memberships in consumer groups; "": they are not static
	Secrets  Secrets        `json:"-"` // of the user's services

	DatabaseTLS *tls.Config `json:"-"` // from files; nil: the DSN says whether TLS is used
	RedisTLS    *tls.Config `json:"-"` // from files; nil: the URL says whether TLS is used
}

func setOrNot(secret string) string {
	if secret == "" {
		return "not set"
	}
	return "set"
}

// ofKubernetes matches variables that Kubernetes sets for a Service whose name begins with orderclose.
var ofKubernetes = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_|$)|_PORT(_\d+_|$)`)

// UnknownVariables returns a line for each variable of environ that begins with ORDERCLOSE_ and that no
// part of the program reads, with the variable that was probably meant. environ has the form of
// os.Environ. The lines hold no values.
func UnknownVariables(environ []string) (lines []string) {
	known := knownVariables()
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "ORDERCLOSE_") || slices.Contains(known, name) || ofKubernetes.MatchString(name) {
			continue
		}
		line := name + " is not a variable of this program and has no effect"
		if meant := config.Closest(name, known); meant != "" {
			line += "; did you mean " + meant + "?"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// knownVariables returns the variables that are read.
func knownVariables() (known []string) {
	note := func(name string) (string, bool) { known = append(known, name); return "", false }
	_, _ = Read(note)
	_, _ = ReadConsole(note)
	return known
}

// notSecret matches variables that name files without secrets.
var notSecret = regexp.MustCompile(`_(CA|CERT)_FILE$`)

// OpenSecrets returns a line for each variable of environ that names a file with a secret which every user of
// the machine may read or write. environ is that of UnknownVariables. The lines hold no values.
func OpenSecrets(environ []string) (lines []string) {
	known := knownVariables()
	for _, entry := range environ {
		name, file, _ := strings.Cut(entry, "=")
		if token, ok := strings.CutPrefix(file, "file:"); ok && name == EnvSASLToken {
			file = token
		} else if !strings.HasSuffix(name, "_FILE") || notSecret.MatchString(name) || !slices.Contains(known, name) {
			continue
		}
		if line := OpenFile(name, file); line != "" {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// OpenFile returns the line of OpenSecrets for a file that name names, or "" if other users may neither read nor write it.
func OpenFile(name, file string) string {
	info, err := os.Stat(file)
	if err != nil || info.Mode()&0o006 == 0 {
		return ""
	}
	return fmt.Sprintf("%s names a file of mode %#o: every user of the machine may read or write it; chmod o= FILE", name, info.Mode().Perm())
}

var examples = map[string]string{
	EnvBrokers: "127.0.0.1:9092,127.0.0.1:9093",
	EnvDSN:     "user:password@tcp(127.0.0.1:3306)/shop",
	EnvRedis:   "redis://127.0.0.1:6379/0",

	EnvInstance: "host1-relay",

	EnvHTTPSecret:    "what echo whsec_$(openssl rand -base64 32) prints",
	EnvPaymentSecret: "what echo whsec_$(openssl rand -base64 32) prints",
	EnvWebhookSecret: "what echo whsec_$(openssl rand -base64 32) prints",
}

// variables are the names for Read. The variables that belong to each are read with it.
var variables = []string{EnvBrokers, EnvDSN, EnvRedis, EnvListen, EnvInstance, EnvHTTPSecret, EnvPaymentSecret, EnvWebhookSecret}

// Read reads the servers through lookup: os.LookupEnv, or a fake in tests. An
// empty variable counts as not set. With names, Read reads only those variables
// and the variables that belong to them: a wrong value does not stop a command that does
// not use it. Without names it reads all. The error names every wrong variable and never
// quotes a value, because values are secrets.
func Read(lookup func(string) (string, bool), names ...string) (Servers, error) {
	s, e := Servers{Listen: DefaultListen}, environment{lookup: lookup}
	if len(names) == 0 {
		names = variables
	}
	wants := func(name string) bool {
		return slices.Contains(names, name) //mutant:unused-variable-stops
	}
	if wants(EnvBrokers) {
		s.Brokers = e.brokers()
		s.Kafka = kafka.Security{TLS: e.tls(kafkaFiles), SASL: e.kafkaSASL()}
	}
	if wants(EnvDSN) {
		s.DSN, s.DatabaseTLS = e.value(EnvDSN), e.tls(databaseFiles)
	}
	if wants(EnvHTTPSecret) {
		s.Secrets.HTTP = e.secrets(EnvHTTPSecret)
	}
	if wants(EnvPaymentSecret) {
		s.Secrets.Payment = e.secrets(EnvPaymentSecret)
	}
	if wants(EnvWebhookSecret) {
		s.Secrets.Webhook = e.secrets(EnvWebhookSecret)
	}
	if wants(EnvRedis) {
		s.RedisURL, s.RedisTLS = e.value(EnvRedis), e.tls(redisFiles)
		u, err := url.Parse(s.RedisURL) // do not wrap err: it quotes the URL with its password
		e.refuse(s.RedisURL != "" && (err != nil || u.Scheme != "redis" && u.Scheme != "rediss" && u.Scheme != "unix" || u.Fragment != ""),
			"%s is not a Redis URL; write it such as %s (special letters of a password %%-escaped)", EnvRedis, examples[EnvRedis])
	}
	if wants(EnvListen) {
		s.Listen = e.listen(EnvListen, DefaultListen)
	}
	if wants(EnvInstance) {
		s.Instance = e.plain(EnvInstance)
		e.refuse(!ValidInstance(s.Instance),
			"%s has other characters than letters, digits, '.', '_' and '-', or more than 100; write it such as %s", EnvInstance, examples[EnvInstance])
	}
	_, _ = e.plain(EnvLogFormat), e.plain(config.EnvConfig) // they are known; LogHandler and the command line read them
	if err := errors.Join(e.errs...); err != nil {
		return Servers{}, err
	}
	return s, nil
}

// ValidInstance reports whether brokers accept the instance of a process in each of its groups.
func ValidInstance(name string) bool { return instanceForm.MatchString(name) }

var instanceForm = regexp.MustCompile(`^[a-zA-Z0-9._-]{0,100}$`)

// environment reads variables, and collects the errors.
type environment struct {
	lookup func(string) (string, bool)
	errs   []error
}

func (e *environment) fail(err error) {
	if err != nil {
		e.errs = append(e.errs, err)
	}
}

// refuse adds an error if a rule is broken.
func (e *environment) refuse(broken bool, format string, args ...any) {
	if broken {
		e.fail(fmt.Errorf(format, args...))
	}
}

// plain returns the value of a variable; "": it is not set.
func (e *environment) plain(name string) string {
	value, _ := e.lookup(name)
	return value
}

// value returns the value of a variable, or the content of the file that the variable name_FILE names;
// "": neither is set, or it is wrong.
func (e *environment) value(name string) string {
	own, file := e.plain(name), e.plain(name+"_FILE")
	switch {
	case file == "":
		return own
	case own != "":
		e.fail(fmt.Errorf("%s and %s_FILE are both set; unset one", name, name))
		return ""
	}
	data, err := readFile(file, config.MaxSecret)
	if err != nil {
		e.fail(fmt.Errorf("%s_FILE names a file that cannot be read: %w; mount the secret there or unset the variable", name, err))
		return ""
	}
	// Editors end a file with a newline, which is not part of the secret.
	value := strings.TrimRight(string(data), "\r\n")
	e.refuse(value == "", "%s_FILE: the file %s is empty; write the value into it", name, file)
	return value
}

// The environment variables with the secrets of the user's services. As with EnvDSN,
// a file may hold the value. While a secret is being changed, the value has several
// secrets, separated by commas, spaces or newlines: each request is signed with all of them.
const (
	EnvHTTPSecret    = "ORDERCLOSE_HTTP_SECRET"
	EnvPaymentSecret = "ORDERCLOSE_PAYMENT_SECRET"
	EnvWebhookSecret = "ORDERCLOSE_WEBHOOK_SECRET"
)

// Secrets sign the requests to the services of the shop that topics.yaml names. Each secret is whsec_ and 24 to
// 64 bytes in base64; "echo whsec_$(openssl rand -base64 32)" makes one. A request has a signature by each secret of its
// list, and a service accepts any of them, so that a secret can be replaced without a moment in
// which requests are refused. Printing or logging Secrets hides them.
type Secrets struct {
	HTTP    []string `json:"-"` // for the service that closes orders; required by closer.http.url
	Payment []string `json:"-"` // for the payment provider; required by closer.payment.url
	Webhook []string `json:"-"` // for the receiver of events; required by the role webhook
}

// Format hides the secrets, for every verb.
func (Secrets) Format(f fmt.State, _ rune) { fmt.Fprint(f, "secrets") }

func (e *environment) secrets(name string) []string {
	raw := e.value(name)
	if raw == "" {
		return nil
	}
	secrets := signature.Split(raw)
	if _, err := signature.Parse(secrets); err != nil {
		e.fail(fmt.Errorf("%s: %w", name, err))
	}
	return secrets
}

// OfClosing returns the environment variables that a kind of closing requires.
func OfClosing(c config.Closer) []string {
	if c.Kind == config.KindHTTP {
		return []string{EnvHTTPSecret}
	}
	if c.AsksPayment() {
		return []string{EnvDSN, EnvPaymentSecret}
	}
	return []string{EnvDSN}
}

// Require returns an error that names each of the variables that is not set, with a hint.
func (s Servers) Require(names ...string) error {
	set := map[string]bool{EnvBrokers: len(s.Brokers) > 0, EnvDSN: s.DSN != "", EnvRedis: s.RedisURL != "", EnvListen: s.Listen != "",
		EnvHTTPSecret: len(s.Secrets.HTTP) > 0, EnvPaymentSecret: len(s.Secrets.Payment) > 0, EnvWebhookSecret: len(s.Secrets.Webhook) > 0}
	var errs []error
	for _, name := range names {
		if !set[name] {
			orFile := ", or name a file that holds it in " + name + "_FILE"
			if name == EnvBrokers || name == EnvListen { // they are no secrets
				orFile = ""
			}
			if name == EnvDSN {
				orFile = " (for PostgreSQL postgres://user:password@127.0.0.1:5432/shop)" + orFile
			}
			errs = append(errs, fmt.Errorf("%s is not set; export it, such as %s=%q%s", name, name, cmp.Or(examples[name], "…"), orFile))
		}
	}
	return errors.Join(errs...)
}

// Format lists what is set, without secrets, for every verb.
func (s Servers) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "brokers %s (%v), database %s, redis %s, listen %s",
		strings.Join(s.Brokers, ","), s.Kafka, setOrNot(s.DSN), setOrNot(s.RedisURL), s.Listen)
}

// readFile reads a file of at most limit bytes that a variable names. The error does not quote the name: the variable
// may have the secret itself by mistake.
func readFile(name string, limit int64) ([]byte, error) {
	data, err := config.ReadFile(name, limit)
	if wrapped, ok := errors.AsType[*fs.PathError](err); ok {
		err = wrapped.Err //mutant:secret-quoted
	}
	return data, err
}

func (e *environment) brokers() []string {
	list := e.plain(EnvBrokers)
	if list == "" {
		return nil
	}
	brokers := strings.Split(list, ",")
	for i, broker := range brokers {
		brokers[i] = strings.TrimSpace(broker)
		if !hostPort(brokers[i], 1) || strings.HasPrefix(brokers[i], ":") {
			e.fail(fmt.Errorf("%s: entry %d is not host:port; write it such as %s", EnvBrokers, i+1, examples[EnvBrokers]))
			return nil
		}
	}
	return brokers
}

// listen returns the address of a listener.
func (e *environment) listen(name, standard string) string {
	address := cmp.Or(e.plain(name), standard)
	e.refuse(!hostPort(address, 0), "%s is not host:port; write it such as %s", name, standard)
	return address
}

func hostPort(s string, lowest int) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || strings.ContainsAny(host, "/@ ") {
		return false
	}
	n, err := strconv.Atoi(port)
	return err == nil && n >= lowest && n <= 65535
}

// PlainRedis reports whether a URL of Redis sends a password over a network without encryption.
func PlainRedis(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "redis" || config.IsLoopback(u.Hostname()) {
		return false
	}
	_, has := u.User.Password()
	return has || u.Query().Has("password") // of servers with sentinels
}

// EnvLogFormat is how a program logs if its flag --log-format does not say it.
const EnvLogFormat = "ORDERCLOSE_LOG_FORMAT"

// The formats of logs.
const (
	logText = "text" // the default
	logJSON = "json" // an object on each line
)

// LogHandler returns a handler that writes to w, in the format of the flag --log-format, or else of EnvLogFormat, which lookup returns;
// nil: no variable is set. The error names the one that has another value than text or json.
func LogHandler(w io.Writer, flag string, lookup func(string) (string, bool), o *slog.HandlerOptions) (slog.Handler, error) {
	variable := ""
	if lookup != nil {
		if value, set := lookup(EnvLogFormat); set {
			variable = value
		}
	}
	switch format := cmp.Or(flag, variable, logText); {
	case format == logText:
		return slog.NewTextHandler(w, o), nil
	case format == logJSON:
		return slog.NewJSONHandler(text.HarmlessWriter{W: w}, o), nil // the handler of text quotes by itself
	case flag != "":
		return nil, fmt.Errorf("--log-format is %q, want %s or %s", flag, logText, logJSON)
	}
	return nil, fmt.Errorf("%s is %q, want %s or %s", EnvLogFormat, variable, logText, logJSON)
}
