package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/orderclose/orderclose/internal/store/mapping"
)

// The names of refusals that the list accept of topics.yaml lifts, besides those of
// mapping.Acceptable.
const (
	LongSmallestBucket = "long_smallest_bucket" // the smallest bucket is longer than maxSmallestBucket
	LongPeriod         = "long_period"          // compensator.period is longer than maxPeriod
	WithoutTLS         = "without_tls"          // a service of the shop is http:// of another machine
)

// Acceptable returns every name that the list accept may contain.
func Acceptable() []string {
	return append([]string{LongSmallestBucket, LongPeriod, WithoutTLS}, mapping.Acceptable()...)
}

// Accepts reports whether the file accepts by name what is refused, or found fault with, otherwise.
func (c *Config) Accepts(name string) bool { return slices.Contains(c.Accept, name) }

// refuseUnless refuses the value at path, unless the file accepts it by name. An empty name cannot be
// accepted.
func (r *reader) refuseUnless(s *settings, name, path, what, do string) {
	if !slices.Contains(s.Accept, name) && !r.bad[path] {
		r.refuse(path, r.at[path], what, mapping.OrAccept(do, name))
	}
}

// maxSmallestBucket bounds the smallest bucket. Every shorter delay goes there too, so a relay must
// know each of its records at once: a long one holds more than the memory of a relay.
const maxSmallestBucket = time.Minute

// checkBounds refuses durations that are valid and do harm.
func (r *reader) checkBounds(s *settings) {
	const early = "an order would be closed before its customer has seen it"
	c := s.Compensator
	r.atLeast(s, "delays.default", s.Delays.Default, time.Second, early)
	for name, d := range s.Delays.ByCategory {
		r.atLeast(s, "delays.categories."+name, d, time.Second, early)
	}
	r.atLeast(s, "kafka.session_timeout", s.Kafka.SessionTimeout, 6*time.Second, "brokers refuse shorter sessions")
	r.atMost(s, "", "kafka.session_timeout", s.Kafka.SessionTimeout, 5*time.Minute, "the partitions of a process that died would stand still for so long")
	r.atLeast(s, "compensator.period", c.Period, time.Second, "the database would get a row for less than each second")
	r.atMost(s, LongPeriod, "compensator.period", c.Period, day, "nobody would be told for so long that the compensation has not finished")
}

func (r *reader) atLeast(s *settings, path string, d, least time.Duration, why string) {
	if d < least && r.at[path] != nil {
		r.refuseUnless(s, "", path, fmt.Sprintf("%s is shorter than %s: %s", r.rawValue(path), FormatDuration(least), why), "write "+FormatDuration(least)+" or more")
	}
}

// atMost refuses a longer duration, unless the file accepts it by name.
func (r *reader) atMost(s *settings, name, path string, d, most time.Duration, why string) {
	if d > most {
		r.refuseUnless(s, name, path, fmt.Sprintf("%s is longer than %s: %s", r.rawValue(path), FormatDuration(most), why), "write "+FormatDuration(most)+" or less")
	}
}

// Private reports whether nobody else can read or change what is sent to a URL: it uses TLS, or its
// host is this machine. No URL is private too.
func Private(raw string) bool {
	u, err := url.Parse(raw)
	return err != nil || u.Scheme != "http" || IsLoopback(u.Hostname())
}

// IsLoopback reports whether a host is this machine. A name other than localhost counts as outside, whatever it
// resolves to.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// WebURL parses a URL. It returns false unless this is http:// or https:// and a host.
func WebURL(raw string) (*url.URL, bool) {
	u, err := url.Parse(raw)
	return u, err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}
