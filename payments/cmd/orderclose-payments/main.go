// Command orderclose-payments cancels payments for a closer: it serves the requests of closer.payment
// (docs/http.md) for shops in any language. docs/payments.md says how to configure it.
//
//	orderclose-payments --config payments.yaml
//	orderclose-payments --config payments.yaml --ask ORDER-ID    prints the provider's answer, changes nothing
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/httpcall"
	"github.com/orderclose/orderclose/internal/retry"
	"github.com/orderclose/orderclose/internal/store/mysqldsn"
	"github.com/orderclose/orderclose/internal/text"
	"github.com/orderclose/orderclose/payments"
	"github.com/orderclose/orderclose/payments/alipay"
	"github.com/orderclose/orderclose/payments/paypal"
	"github.com/orderclose/orderclose/payments/stripe"
	"github.com/orderclose/orderclose/payments/wechatpay"
)

const usage = `usage: orderclose-payments [--config payments.yaml] [--ask ORDER-ID] [--log-format json]

Cancels the payments of orders before a closer closes them, until SIGTERM. With --ask it prints what the
provider says about an order, and changes nothing. ` + environ.EnvDSN + ` names the shop's database, and
` + environ.EnvPaymentSecret + ` the closer's secret. Logs are text, or JSON with --log-format json or
` + environ.EnvLogFormat + `=json. docs/payments.md describes payments.yaml.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(text.HarmlessWriter{W: os.Stderr}, "orderclose-payments:", err)
		os.Exit(1)
	}
}

// run is the command. It returns when ctx ends, or, with --ask, after the answer.
func run(ctx context.Context, args []string, lookup func(string) (string, bool), stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("orderclose-payments", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { fmt.Fprint(stderr, usage) }
	name, ask, format := flags.String("config", "payments.yaml", ""), flags.String("ask", "", ""), flags.String("log-format", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see --help", flags.Arg(0))
	}
	handler, err := environ.LogHandler(stderr, *format, lookup, nil)
	if err != nil {
		return err
	}
	c, err := readConfig(*name)
	if err != nil {
		return err
	}
	needs := []string{environ.EnvDSN, environ.EnvPaymentSecret}
	servers, err := environ.Read(lookup, needs...)
	if err == nil {
		err = servers.Require(needs...)
	}
	if err != nil {
		return err
	}
	db, err := openDatabase(servers)
	if err != nil {
		return err
	}
	defer db.Close()
	logger := retry.LimitLogs(slog.New(handler))
	for _, problem := range openFiles(c, lookup, needs) {
		logger.Warn("secret is open to every user", "problem", problem)
	}
	s, err := newService(c, servers.Secrets.Payment, db, httpcall.Transport(), logger)
	if err != nil {
		return err
	}
	if *ask != "" {
		return s.printAnswer(ctx, *ask, stdout)
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("%w: set listen to another host:port", err)
	}
	return s.serve(ctx, listener)
}

// Limits of the connections to the shop's database.
const (
	dialLimit      = 2 * time.Second
	maxConnections = 8
	connectionAge  = 30 * time.Second // after a failover, the old server is left within this time
)

// databaseConfig returns how to connect to the shop's database.
func databaseConfig(servers environ.Servers) (*mysql.Config, error) {
	m, err := mysqldsn.Parse(servers.DSN, servers.DatabaseTLS)
	if err != nil {
		return nil, err
	}
	m.Timeout = dialLimit
	return m, mysqldsn.Force(m) // if the server's sql_select_limit cut an answer, paid orders would look unpaid
}

// openDatabase returns the shop's database. It connects with the first query.
func openDatabase(servers environ.Servers) (*sql.DB, error) {
	m, err := databaseConfig(servers)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", environ.EnvDSN, err)
	}
	connector, err := mysql.NewConnector(m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", environ.EnvDSN, err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(maxConnections)
	db.SetMaxIdleConns(maxConnections)
	db.SetConnMaxLifetime(connectionAge)
	db.SetConnMaxIdleTime(mysqldsn.MaxIdle)
	return db, nil
}

// openFiles returns a line for each file with a secret that every user of the machine may read or write.
func openFiles(c config, lookup func(string) (string, bool), variables []string) (lines []string) {
	for _, name := range variables {
		file, _ := lookup(name + "_FILE")
		lines = append(lines, environ.OpenFile(name+"_FILE", file))
	}
	if c.Stripe != nil {
		lines = append(lines, environ.OpenFile("stripe.key_file", c.Stripe.KeyFile))
	}
	if c.PayPal != nil {
		lines = append(lines, environ.OpenFile("paypal.secret_file", c.PayPal.SecretFile))
	}
	if c.Alipay != nil {
		lines = append(lines, environ.OpenFile("alipay.private_key_file", c.Alipay.PrivateKeyFile))
	}
	if c.WeChatPay != nil {
		lines = append(lines, environ.OpenFile("wechatpay.private_key_file", c.WeChatPay.PrivateKeyFile))
	}
	return slices.DeleteFunc(lines, func(line string) bool { return line == "" })
}

// newService connects the parts. transport sends the calls to payment providers.
func newService(c config, secrets []string, db *sql.DB, transport http.RoundTripper, logger *slog.Logger) (*service, error) {
	references, err := payments.SQL(db, c.Query)
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	m := newMetrics(prometheus.NewRegistry())
	var apis []payments.API
	if p := c.Stripe; p != nil {
		if p.URL != "" {
			logger.Warn("stripe.url is set: a test server answers in place of Stripe", "url", p.URL)
		}
		api, err := stripe.New(stripe.Options{
			Key: p.key, Account: p.Account, URL: p.URL, AuthorizedIsPaid: p.Authorized == authorizedPaid, Transport: m.calls("stripe", transport),
		})
		if err != nil {
			return nil, err
		}
		apis = append(apis, api)
	}
	if p := c.PayPal; p != nil {
		api, err := paypal.New(paypal.Options{
			ClientID: p.ClientID, Secret: p.secret, Sandbox: p.Sandbox, ShopCapturesBeforeDue: p.ShopCapturesBeforeDue, Transport: m.calls("paypal", transport),
		})
		if err != nil {
			return nil, err
		}
		apis = append(apis, api)
	}
	if p := c.Alipay; p != nil {
		api, err := alipay.New(alipay.Options{
			AppID: p.AppID, PrivateKey: p.privateKey, AlipayPublicKey: p.publicKey, Sandbox: p.Sandbox,
			AppCertificate: p.appCertificate, RootCertificates: p.rootCertificates, Transport: m.calls("alipay", transport),
		})
		if err != nil {
			return nil, err
		}
		apis = append(apis, api)
	}
	if p := c.WeChatPay; p != nil {
		api, err := wechatpay.New(wechatpay.Options{
			MerchantID: p.MerchantID, CertificateSerial: p.CertificateSerial, PrivateKey: p.privateKey,
			PublicKeyID: p.PublicKeyID, PublicKey: p.publicKey, Transport: m.calls("wechatpay", transport),
		})
		if err != nil {
			return nil, err
		}
		apis = append(apis, api)
	}
	provider, err := payments.New(payments.Options{References: references, APIs: apis, Logger: logger})
	if err != nil {
		return nil, err
	}
	return &service{provider: provider, references: references, secrets: secrets, metrics: m, logger: logger}, nil
}

// printAnswer prints what the payment provider says about an order. It changes nothing.
func (s *service) printAnswer(ctx context.Context, order string, w io.Writer) error {
	references, err := s.references(ctx, []string{order})
	if err != nil {
		return fmt.Errorf("query: %w", err)
	}
	answers, err := s.provider.Ask(ctx, []string{order})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "order %s: %s: %s\n", order, describe(references[order]), answers[0])
	return err
}

// describe names the payments of an order. An empty reference is a payment without one.
func describe(references []string) string {
	count := func(n int) string {
		if n == 1 {
			return "1 payment"
		}
		return fmt.Sprintf("%d payments", n)
	}
	named := slices.DeleteFunc(slices.Clone(references), func(r string) bool { return r == "" })
	var parts []string
	if len(named) > 0 {
		parts = append(parts, fmt.Sprintf("%s %q", count(len(named)), named))
	}
	if unnamed := len(references) - len(named); unnamed > 0 {
		parts = append(parts, count(unnamed)+" without a reference (being opened, or the shop crashed)")
	}
	return cmp.Or(strings.Join(parts, " and "), "no payment")
}
