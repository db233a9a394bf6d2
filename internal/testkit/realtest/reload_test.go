package realtest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orderclose/orderclose"
	"github.com/orderclose/orderclose/examples/checkout/shopdb"
	"github.com/orderclose/orderclose/internal/environ"
	"github.com/orderclose/orderclose/internal/kafka/drop"
	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
	"github.com/orderclose/orderclose/internal/testkit/scenario"
	"github.com/orderclose/orderclose/producer"
)

func request(t *testing.T, method, url string) (code int, body string) {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), method, url, nil))(t)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	data := must.Get(io.ReadAll(res.Body))(t)
	return res.StatusCode, string(data)
}

func TestReal_AChangedTopicsFileIsAppliedWhileAllPartsRun(t *testing.T) {
	eachDatabase(t, aChangedTopicsFile)
}

func aChangedTopicsFile(t *testing.T, s environ.Servers) {
	r := newRig(t, s)
	listen := freeAddress(t)
	r.extra = func(args []string) []string {
		if slices.Contains(args, "relay") {
			return []string{environ.EnvListen + "=" + listen}
		}
		return nil
	}
	p := must.Get(producer.New(producer.Options{
		Brokers: r.servers.Brokers, TopicsFile: r.file, Watch: true, Logger: slog.New(slog.NewTextHandler(r.logs, nil)),
	}))(t)
	t.Cleanup(p.Close)
	r.shop.Producer = p
	metric := func(name string) string {
		_, body := request(t, "GET", "http://"+listen+"/metrics")
		for line := range strings.Lines(body) {
			if value, ok := strings.CutPrefix(line, "orderclose_"+name+" "); ok {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	reload := func() (int, string) { return request(t, "POST", "http://"+listen+"/-/reload") }
	delay := func(category string) time.Duration {
		o := p.Order("o", time.UnixMilli(0), category)
		return o.Due.Sub(o.CreatedAt)
	}
	order := func(id, category string) orderclose.Order {
		t.Helper()
		o := p.Order(r.prefix+id, time.Now().Truncate(time.Millisecond), category)
		must.Do(t, r.shop.Orders.CreateOrder(t.Context(), o, []shopdb.Item{{SKU: scenario.SKU(0), Quantity: 1}}))
		must.Do(t, r.shop.Publish(t.Context(), o))
		return o
	}
	r.start("relay", "closer", "compensator", "outbox")
	r.until("the relay is ready", func() bool { code, _ := request(t, "GET", "http://"+listen+"/-/ready"); return code == 200 })
	got := metric("config_last_reload_successful")
	expect.That(t, got == "1", "config_last_reload_successful is %s at the start", got)

	// A new delay applies to new orders.
	before := order("before", "physical")
	r.rewrite("physical: 8s", "physical: 4s, fresh: 3s")
	r.until("the producer has the new delays", func() bool { return delay("physical") == 4*time.Second && delay("fresh") == 3*time.Second })
	after := order("after", "physical")
	if d := before.Due.Sub(before.CreatedAt); d != 8*time.Second || after.Due.Sub(after.CreatedAt) != 4*time.Second {
		t.Errorf("the order before has %v, the one after %v", d, after.Due.Sub(after.CreatedAt))
	}

	// A file with a mistake.
	r.rewrite("physical: 4s", "physical: 4", "fresh: 3s", "fresh: 9s")
	r.until("the mistake is told", func() bool { return metric("config_last_reload_successful") == "0" })
	if code, body := reload(); code != http.StatusBadRequest || !strings.Contains(body, "topics.yaml:8:55: delays.categories.physical") ||
		!strings.Contains(body, "has no unit") {
		t.Errorf("POST: %d %s", code, body)
	}
	expect.Equal(t, delay("fresh"), 3*time.Second, "half of a file with a mistake was taken")
	r.rewrite("physical: 4,", "physical: 4s,")
	if code, body := reload(); code != http.StatusOK || metric("config_last_reload_successful") != "1" {
		t.Errorf("POST: %d %s", code, body)
	}
	r.send("relay", syscall.SIGHUP)
	r.until("SIGHUP is heard", func() bool { return strings.Contains(r.logs.Tail(1<<20), "asked to reload") })

	// A bucket is added: the topic, the relay, the producer.
	r.rewrite("[1s, 2s, 5s]", "[1s, 2s, 5s, 10s]", "fresh: 9s", "fresh: 10s")
	bucket := r.prefix + "delay_10s"
	r.until("the relay waits for the topic", func() bool { return strings.Contains(r.logs.Tail(1<<20), "not serving a topic yet") })
	order("before-the-new-topic", "fresh")
	t.Cleanup(func() {
		r.killAll()
		r.clean(func(ctx context.Context) error { return drop.Topics(ctx, r.kafka, bucket) })
	})
	r.must("topics", "apply")
	for n := 0; slices.Max(r.ends(bucket)) == 0; n++ { // an order that takes a second to be published goes through a smaller bucket
		order(fmt.Sprint("through-the-new-bucket-", n), "fresh")
	}

	// The bucket is removed while it holds records.
	r.readConfig()
	r.rewrite(", 10s]", "]")
	if code, body := reload(); code != http.StatusOK {
		t.Errorf("POST: %d %s", code, body)
	}
	r.until("the producer picks it no longer", func() bool { return p.Topic(time.Now().Add(10*time.Second)) != bucket })
	order("after-the-new-bucket", "fresh")
	r.must("topics", "check")

	r.play(1, 40, 5*time.Second)
	r.settle()
	r.drain()
	v := r.check()
	expect.That(t, v.ByPath["pipeline"] >= 4, "closed %v", v.ByPath)
}
