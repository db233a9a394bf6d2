package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/testkit/measure"
	"github.com/orderclose/orderclose/internal/testkit/servers"
)

// outdated is longer than the console uses most values of Kafka; a page then has to ask again.
// Those of the charts it uses for a minute.
const outdated = 11 * time.Second

// consolePage is a page of the console, and how to see that nothing of it is missing.
type consolePage struct {
	name string
	path string
	id   string // of the order that a form asks for; "": a GET
	has  []string
}

// consolePages returns all pages. The order must exist.
func consolePages(order string) []consolePage {
	return []consolePage{
		{name: "now", path: "/", has: []string{`id="waiting"`}},
		{name: "order", path: "/order", id: order, has: []string{`data-known="true"`}},
		{name: "dead-letters", path: "/dead-letters", has: []string{`<tr data-at="`}},
		{name: "dead-letter", path: "/dead-letters/0/17", has: []string{`id="headers"`}},
		{name: "sweeps", path: "/sweeps", has: []string{`<table id="sweeps"`}},
		{name: "delays", path: "/delays", has: []string{`id="pauses-heading"`, `id="drift-heading"`}},
	}
}

// missing returns what is not in the page yet.
func (p consolePage) missing(body string) string {
	for _, part := range p.has {
		if !strings.Contains(body, part) {
			return part
		}
	}
	if strings.Contains(body, `class="away" role="status"`) {
		return "an answer of a server"
	}
	return ""
}

// benchConsole measures the console on a pipeline with waiting records, closed orders, dead
// letters and sweeps, whose relay runs.
func benchConsole(ctx context.Context, p *workspace, pl plan, program string) error {
	dir, err := os.MkdirTemp("", "orderclose-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := p.serve(program, dir)
	if err != nil {
		return err
	}
	shop, err := localShop(ctx)
	if err != nil {
		return err
	}
	defer shop.close()
	s.env = []string{config.EnvDSN + "=" + shop.dsn}
	state := consoleState{s, pl}
	if err := state.fill(ctx, shop); err != nil {
		return err
	}
	relay, err := s.runRelay(ctx, 1)
	if err != nil {
		return err
	}
	defer relay.stop()
	r := consoleReport{Waiting: pl.shown, Letters: pl.letters}
	if r.Pages, r.Renewed, r.Read, err = s.measurePages(ctx, pl); err != nil {
		return fmt.Errorf("pages: %w", err)
	}
	if r.Traffic, err = s.measureTraffic(ctx, pl); err != nil {
		return fmt.Errorf("cost of the brokers: %w", err)
	}
	if r.None, r.Open, err = s.measureOpen(ctx, pl.watch); err != nil {
		return fmt.Errorf("an open page: %w", err)
	}
	if err := state.allWait(ctx); err != nil {
		return err
	}
	if r.Without, r.With, err = state.measureLateness(ctx); err != nil {
		return fmt.Errorf("lateness: %w", err)
	}
	if err := relay.stop(); err != nil {
		return err
	}
	r.Ratio = measure.Number(r.With.P99) / measure.Number(r.Without.P99)
	return measure.Print(os.Stdout, os.Stderr, r)
}

// webConsole is a running console.
type webConsole struct {
	*running
	address string // http://127.0.0.1:9465
	client  *http.Client
}

// openConsole starts a console and returns when it serves its style sheet, for which it asks no
// server.
func (s *served) openConsole(ctx context.Context) (*webConsole, error) {
	listen, err := servers.FreeAddress()
	if err != nil {
		return nil, err
	}
	with := *s
	with.env = append(slices.Clone(s.env), config.EnvConsoleListen+"="+listen)
	c := &webConsole{address: "http://" + listen, client: &http.Client{Transport: &http.Transport{}}}
	if c.running, err = with.run("run", "console"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	for {
		if status, _, err := c.do(ctx, http.MethodGet, "/static/style.css", "", ""); err == nil && status == http.StatusOK {
			return c, nil
		}
		if !sleep(ctx, 2*time.Millisecond) {
			return nil, errors.Join(ctx.Err(), c.stop())
		}
	}
}

// do sends a request with a body of a media type, and returns the status and the whole body of the answer.
func (c *webConsole) do(ctx context.Context, method, path, mediaType, body string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.address+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if mediaType != "" {
		req.Header.Set("Content-Type", mediaType)
	}
	res, err := c.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	return res.StatusCode, string(answer), err
}

// view opens a page, and again until nothing of it is missing. It returns how long that took.
func (c *webConsole) view(ctx context.Context, p consolePage) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	method, mediaType, form := http.MethodGet, "", ""
	if p.id != "" {
		method, mediaType, form = http.MethodPost, "application/x-www-form-urlencoded", url.Values{"id": {p.id}}.Encode()
	}
	for began := time.Now(); ; {
		status, body, err := c.do(ctx, method, p.path, mediaType, form)
		took := time.Since(began)
		missing := p.missing(body)
		if err == nil && status == http.StatusOK && missing == "" {
			return took, nil
		}
		if !sleep(ctx, 10*time.Millisecond) {
			return 0, fmt.Errorf("page %s is not complete after %v: status %d, %s is missing: %w", p.name, took.Round(time.Second), status, missing,
				errors.Join(err, ctx.Err()))
		}
	}
}

// measurePages measures each page. renewed is how long after a view of Now the console has the new state
// of the topics; read is how many records the history of the order reads.
func (s *served) measurePages(ctx context.Context, pl plan) (timed []timedPage, renewed measure.Spread, read int64, err error) {
	pages := consolePages(idOf(0))
	cold, warm, again := make([][]time.Duration, len(pages)), make([][]time.Duration, len(pages)), make([][]time.Duration, len(pages))
	var renewals []time.Duration
	for round := range pl.starts {
		for i, p := range pages {
			took, err := s.viewAfterStart(ctx, p)
			if err != nil {
				return nil, renewed, 0, err
			}
			cold[i] = append(cold[i], took)
		}
		fmt.Fprintf(os.Stderr, "pages after a start, %d of %d\n", round+1, pl.starts)
	}
	c, err := s.openConsole(ctx)
	if err != nil {
		return nil, renewed, 0, err
	}
	defer c.stop()
	for _, p := range pages {
		if _, err := c.view(ctx, p); err != nil {
			return nil, renewed, 0, err
		}
	}
	for range pl.views {
		if !sleep(ctx, outdated) {
			return nil, renewed, 0, ctx.Err()
		}
		for i, p := range pages {
			began := time.Now()
			took, err := c.view(ctx, p)
			if err == nil && p.path == "/" {
				err = c.awaitStatus(ctx, began)
				renewals = append(renewals, time.Since(began))
			}
			if err != nil {
				return nil, renewed, 0, err
			}
			repeated, err := c.view(ctx, p)
			if err != nil {
				return nil, renewed, 0, err
			}
			warm[i], again[i] = append(warm[i], took), append(again[i], repeated)
		}
	}
	for i, p := range pages {
		cold, warm, again := measure.SpreadOf(cold[i]), measure.SpreadOf(warm[i]), measure.SpreadOf(again[i])
		timed = append(timed, timedPage{p.name, cold.P50, cold.Max, warm.P50, warm.Max, again.P50, again.Max})
	}
	read, err = c.searched(ctx, idOf(0))
	return timed, measure.SpreadOf(renewals), read, errors.Join(err, c.stop())
}

func (s *served) viewAfterStart(ctx context.Context, p consolePage) (time.Duration, error) {
	c, err := s.openConsole(ctx)
	if err != nil {
		return 0, err
	}
	took, err := c.view(ctx, p)
	return took, errors.Join(err, c.stop())
}

// awaitStatus waits until the console has read the state of the topics after a moment.
func (c *webConsole) awaitStatus(ctx context.Context, after time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	for {
		var answer struct {
			Kafka struct {
				At time.Time `json:"at"`
			} `json:"kafka"`
		}
		_, body, err := c.do(ctx, http.MethodGet, "/api/v1/status", "", "")
		if err == nil {
			err = json.Unmarshal([]byte(body), &answer)
		}
		if err != nil {
			return fmt.Errorf("the status of the console: %w", err)
		}
		if answer.Kafka.At.After(after) {
			return nil
		}
		if !sleep(ctx, time.Millisecond) {
			return fmt.Errorf("the console has no new state of the topics: %w", ctx.Err())
		}
	}
}

// searched returns how many records the history of an order reads.
func (c *webConsole) searched(ctx context.Context, order string) (records int64, err error) {
	_, body, err := c.do(ctx, http.MethodPost, "/api/v1/order", "application/json", `{"order_id":"`+order+`"}`)
	if err != nil {
		return 0, err
	}
	var history struct {
		Topics []struct {
			Looked int64 `json:"looked_at"`
		} `json:"topics"`
	}
	err = json.Unmarshal([]byte(body), &history)
	for _, t := range history.Topics {
		records += t.Looked
	}
	return records, err
}

// measureTraffic counts the requests of orderclose status, and of consoles, in a proxy.
func (s *served) measureTraffic(ctx context.Context, pl plan) (all []traffic, err error) {
	proxy, err := newMetadataProxy(s.workspace.brokers)
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	proxied := *s
	proxied.brokers = []string{proxy.addr(s.workspace.brokers[0])}
	count := func(what string, act func() error) error {
		before := proxy.count()
		if err := act(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if !proxy.quiet(ctx) {
			return ctx.Err()
		}
		spent := proxy.count().minus(before)
		all = append(all, traffic{what, spent.requests(), spent.bytes, measure.Number(spent.requests())})
		all[len(all)-1].Ratio /= measure.Number(all[0].Requests)
		fmt.Fprintf(os.Stderr, "%s: %s\n", what, spent)
		return nil
	}
	err = count("orderclose status", func() error {
		if out, err := proxied.command("status").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	pages := consolePages(idOf(0))
	for i, p := range pages {
		c, err := proxied.openConsole(ctx)
		if err != nil {
			return nil, err
		}
		defer c.stop()
		if !proxy.quiet(ctx) { // it reads the dead letters
			return nil, ctx.Err()
		}
		view := func() error { _, err := c.view(ctx, p); return err }
		if err := count(p.name+", first view", view); err != nil {
			return nil, err
		}
		if i > 0 {
			if err := c.stop(); err != nil {
				return nil, err
			}
			continue
		}
		for _, after := range []time.Duration{outdated, pl.watch + time.Second} {
			if !sleep(ctx, after) {
				return nil, ctx.Err()
			}
			if err := count(fmt.Sprintf("%s, after %v", p.name, after), view); err != nil {
				return nil, err
			}
		}
		wait := func() error { sleep(ctx, pl.watch); return ctx.Err() }
		err = count(fmt.Sprintf("no page open for %v", pl.watch), wait)
		if err == nil {
			err = count(fmt.Sprintf("now open for %v", pl.watch), func() error { return c.hold(ctx, wait) })
		}
		if err := errors.Join(err, c.stop()); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// hold keeps the live updates of Now open while do runs, as a browser that shows the page does.
func (c *webConsole) hold(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.address+"/live?page=now", nil)
	if err != nil {
		return err
	}
	res, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("live updates: status %d", res.StatusCode)
	}
	var ended atomic.Bool
	go func() {
		io.Copy(io.Discard, res.Body)
		ended.Store(true)
	}()
	if err := do(); err != nil {
		return err
	}
	if ended.Load() {
		return errors.New("the console has ended the live updates")
	}
	return nil
}

// measureOpen watches a console without a page, and then with an open page Now.
func (s *served) measureOpen(ctx context.Context, during time.Duration) (none, open usage, err error) {
	c, err := s.openConsole(ctx)
	if err != nil {
		return none, open, err
	}
	defer c.stop()
	if _, err := c.view(ctx, consolePages(idOf(0))[0]); err != nil {
		return none, open, err
	}
	if !sleep(ctx, warmUp) {
		return none, open, ctx.Err()
	}
	fmt.Fprintf(os.Stderr, "watching the console for %v without a page, and for %v with one\n", during, during)
	if none, err = s.watch(ctx, c.PID(), during); err != nil {
		return none, open, err
	}
	err = c.hold(ctx, func() (err error) {
		if !sleep(ctx, warmUp) {
			return ctx.Err()
		}
		open, err = s.watch(ctx, c.PID(), during)
		return err
	})
	return none, open, errors.Join(err, c.stop())
}
