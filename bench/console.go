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
	"github.com/orderclose/orderclose/internal/testkit/servers"

	"github.com/orderclose/orderclose/internal/testkit/process"
)

// outdated is longer than the console uses most values of Kafka; a page then has to ask again.
// Those of the charts and of the lateness it uses for a minute.
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
		{name: "now", path: "/", has: []string{`id="waiting"`, `id="lateness"`, `class="charts"`}},
		{name: "order", path: "/order", id: order, has: []string{`data-known="true"`}},
		{name: "dead-letters", path: "/dead-letters", has: []string{`<tr data-at="`}},
		{name: "dead-letter", path: "/dead-letters/0/17", has: []string{`id="headers"`}},
		{name: "sweeps", path: "/sweeps", has: []string{`<table id="sweeps">`}},
		{name: "replay", path: "/replay", has: []string{`<svg viewBox`}},
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
	if strings.Contains(body, `class="away"`) {
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
	relay, err := s.run("run", "relay")
	if err != nil {
		return err
	}
	defer relay.stop()
	for _, b := range s.cfg.Buckets {
		if err := p.awaitMembers(ctx, s.cfg.RelayGroup(b), 1); err != nil {
			return errors.Join(err, relay.stop())
		}
	}
	r := consoleReport{waiting: pl.shown, letters: pl.letters}
	if r.pages, r.renewed, r.read, err = s.measurePages(ctx, pl); err != nil {
		return fmt.Errorf("pages: %w", err)
	}
	if r.traffic, err = s.measureTraffic(ctx, pl); err != nil {
		return fmt.Errorf("cost of the brokers: %w", err)
	}
	if r.none, r.open, err = s.measureOpen(ctx, pl.watch); err != nil {
		return fmt.Errorf("an open page: %w", err)
	}
	if err := state.allWait(ctx); err != nil {
		return err
	}
	if r.without, r.with, err = state.measureLateness(ctx); err != nil {
		return fmt.Errorf("lateness: %w", err)
	}
	if err := relay.stop(); err != nil {
		return err
	}
	return r.print(os.Stdout, os.Stderr)
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
		if status, _, err := c.do(ctx, http.MethodGet, "/static/style.css", nil); err == nil && status == http.StatusOK {
			return c, nil
		}
		if !sleep(ctx, 2*time.Millisecond) {
			return nil, errors.Join(ctx.Err(), c.stop())
		}
	}
}

// do sends a request, and returns the status and the whole body of the answer.
func (c *webConsole) do(ctx context.Context, method, path string, form url.Values) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.address+path, strings.NewReader(form.Encode()))
	if err != nil {
		return 0, "", err
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := c.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

// view opens a page, and again until nothing of it is missing. It returns how long that took.
func (c *webConsole) view(ctx context.Context, p consolePage) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, turnLimit)
	defer cancel()
	method, form := http.MethodGet, url.Values(nil)
	if p.id != "" {
		method, form = http.MethodPost, url.Values{"id": {p.id}}
	}
	for began := time.Now(); ; {
		status, body, err := c.do(ctx, method, p.path, form)
		took := time.Since(began)
		missing := p.missing(body)
		if err == nil && status == http.StatusOK && missing == "" {
			return took, nil
		}
		if !sleep(ctx, 10*time.Millisecond) {
			return 0, fmt.Errorf("page %s is not complete after %v: status %d, %s is missing: %w", p.name, took.Round(time.Second), status, missing, errors.Join(err, ctx.Err()))
		}
	}
}

// timedPage is how long a page took: right after the start of the console; when what it shows is
// outdated; and again at once. A page waits 200 ms for new values if it has older ones.
type timedPage struct {
	name              string
	cold, warm, again durations // sorted
}

// measurePages measures each page. renewed is how long after a view of Now, sorted, the console has
// the new state of the topics; read is how many records the history of the order reads.
func (s *served) measurePages(ctx context.Context, pl plan) (timed []timedPage, renewed durations, read int64, err error) {
	pages := consolePages(idOf(0))
	timed = make([]timedPage, len(pages))
	for round := range pl.starts {
		for i, p := range pages {
			timed[i].name = p.name
			took, err := s.viewAfterStart(ctx, p)
			if err != nil {
				return nil, nil, 0, err
			}
			timed[i].cold = append(timed[i].cold, took)
		}
		fmt.Fprintf(os.Stderr, "pages after a start, %d of %d\n", round+1, pl.starts)
	}
	c, err := s.openConsole(ctx)
	if err != nil {
		return nil, nil, 0, err
	}
	defer c.stop()
	for _, p := range pages {
		if _, err := c.view(ctx, p); err != nil {
			return nil, nil, 0, err
		}
	}
	for range pl.views {
		if !sleep(ctx, outdated) {
			return nil, nil, 0, ctx.Err()
		}
		for i, p := range pages {
			began := time.Now()
			for _, into := range []*durations{&timed[i].warm, &timed[i].again} {
				took, err := c.view(ctx, p)
				if err != nil {
					return nil, nil, 0, err
				}
				*into = append(*into, took)
				if p.path == "/" && into == &timed[i].warm {
					if err := c.awaitStatus(ctx, began); err != nil {
						return nil, nil, 0, err
					}
					renewed = append(renewed, time.Since(began))
				}
			}
		}
	}
	for i := range timed {
		slices.Sort(timed[i].cold)
		slices.Sort(timed[i].warm)
		slices.Sort(timed[i].again)
	}
	slices.Sort(renewed)
	read, err = c.searched(ctx, idOf(0))
	return timed, renewed, read, errors.Join(err, c.stop())
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
		_, body, err := c.do(ctx, http.MethodGet, "/api/v1/status", nil)
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
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.address+"/api/v1/order", strings.NewReader(`{"order_id":"`+order+`"}`))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	var history struct {
		Topics []struct {
			Looked int64 `json:"looked_at"`
		} `json:"topics"`
	}
	err = json.NewDecoder(res.Body).Decode(&history)
	for _, t := range history.Topics {
		records += t.Looked
	}
	return records, err
}

// traffic is what the brokers are asked and send.
type traffic struct {
	what     string
	requests int64
	bytes    int64 // of requests and responses
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
		all = append(all, traffic{what, spent.requests(), spent.bytes})
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

// openCost is what a console uses while it is watched.
type openCost struct {
	cpuPercent    float64 // of one core
	brokerPercent float64 // of one core
	rssMB         float64 // peak since its start
}

// measureOpen watches a console without a page, and then with an open page Now.
func (s *served) measureOpen(ctx context.Context, during time.Duration) (none, open openCost, err error) {
	broker, err := listenerOf(s.workspace.brokers[0])
	if err != nil {
		return none, open, err
	}
	c, err := s.openConsole(ctx)
	if err != nil {
		return none, open, err
	}
	defer c.stop()
	watch := func(into *openCost) error {
		before, err := process.UsedBy(c.PID())
		if err != nil {
			return err
		}
		brokerBefore, err := process.UsedBy(broker)
		if err != nil {
			return err
		}
		began := time.Now()
		if !sleep(ctx, during) {
			return ctx.Err()
		}
		after, err := process.UsedBy(c.PID())
		if err != nil {
			return err
		}
		brokerAfter, err := process.UsedBy(broker)
		if err != nil {
			return err
		}
		took := time.Since(began).Seconds()
		*into = openCost{100 * (after.CPU - before.CPU).Seconds() / took, 100 * (brokerAfter.CPU - brokerBefore.CPU).Seconds() / took, float64(after.Peak) / (1 << 20)}
		return nil
	}
	if _, err := c.view(ctx, consolePages(idOf(0))[0]); err != nil {
		return none, open, err
	}
	if !sleep(ctx, warmUp) {
		return none, open, ctx.Err()
	}
	fmt.Fprintf(os.Stderr, "watching the console for %v without a page, and for %v with one\n", during, during)
	if err := watch(&none); err != nil {
		return none, open, err
	}
	err = c.hold(ctx, func() error {
		if !sleep(ctx, warmUp) {
			return ctx.Err()
		}
		return watch(&open)
	})
	return none, open, errors.Join(err, c.stop())
}
