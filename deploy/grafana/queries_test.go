package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/orderclose/orderclose/internal/testkit/expect"
	"github.com/orderclose/orderclose/internal/testkit/must"
)

// prom is a Prometheus with the metrics of a run.
type prom struct {
	run
	db     database
	engine *promql.Engine
	parser parser.Parser
}

// prometheusOf stores a run as Prometheus does.
func prometheusOf(t *testing.T, r run) *prom {
	t.Helper()
	db := database{}
	for _, s := range r.scrapes {
		for _, sample := range s.samples {
			b := labels.NewBuilder(labels.FromStrings("instance", s.instance, "job", "orderclose"))
			for name, value := range sample.Metric {
				b.Set(string(name), string(value))
			}
			must.Do(t, db.add(b.Labels(), s.at.UnixMilli(), float64(sample.Value)))
		}
	}
	return &prom{run: r, db: db, engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute}),
		parser: parser.NewParser(parser.Options{})}
}

// values returns the values of a label of the series that a selector selects.
func (p *prom) values(selector, label string) (values []string, err error) {
	matchers, err := p.parser.ParseMetricSelector(selector)
	if err != nil {
		return nil, err
	}
	for _, series := range p.db.find(matchers) {
		if v := series.Labels().Get(label); !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	slices.Sort(values)
	return values, nil
}

// unknownSelectors returns the selectors of a query that select no series.
func (p *prom) unknownSelectors(expr string) (unknown []string, err error) {
	e, err := p.parser.ParseExpr(expr)
	if err != nil {
		return nil, err
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok && len(p.db.find(s.LabelMatchers)) == 0 {
			unknown = append(unknown, s.String())
		}
		return nil
	})
	return unknown, nil
}

// samples counts the samples of a query in a part of the run, and those that are numbers. A stat has only samples of the end.
func (p *prom) samples(ctx context.Context, expr string, instant bool, begin, end time.Time) (all, numbers int, err error) {
	if instant {
		begin = end
	}
	q, err := p.engine.NewRangeQuery(ctx, p.db.queryable(), nil, expr, begin, end, scrapeInterval)
	if err != nil {
		return 0, 0, err
	}
	defer q.Close()
	result := q.Exec(ctx)
	matrix, err := result.Matrix()
	if err != nil {
		return 0, 0, err
	}
	for _, series := range matrix {
		for _, f := range series.Floats {
			if all++; !math.IsNaN(f.F) {
				numbers++
			}
		}
	}
	return all, numbers, nil
}

// substituted returns a query as Grafana sends it to Prometheus for a part of the run, with all values of each variable.
func (p *prom) substituted(expr string, variables map[string]string, length time.Duration) (string, error) {
	replace := map[string]string{"__rate_interval": (4 * scrapeInterval).String(), "__range": length.Round(time.Second).String()}
	var unknown error
	sent := regexp.MustCompile(`\$(\w+)`).ReplaceAllStringFunc(expr, func(name string) string {
		if v, ok := replace[name[1:]]; ok {
			return v
		}
		v, ok := variables[name[1:]]
		if !ok {
			unknown = fmt.Errorf("%s is no variable of the dashboard", name)
		}
		return v
	})
	return sent, unknown
}

// choices returns what each variable of a dashboard stands for if All is chosen.
func (p *prom) choices(d dashboard) (map[string]string, error) {
	choices := map[string]string{}
	for _, v := range d.variables {
		if v.choices != "" {
			var values []string
			for _, choice := range strings.Split(v.choices, ", ") {
				_, series, _ := strings.Cut(choice, " : ")
				if instances, err := p.values(series, "instance"); len(instances) == 0 {
					return nil, fmt.Errorf("the variable %s: no process has %s: %v", v.name, series, err)
				}
				values = append(values, series)
			}
			choices[v.name] = strings.Join(values, "|")
			continue
		}
		selector, err := p.substituted(v.of, choices, 0)
		if err != nil {
			return nil, fmt.Errorf("the variable %s: %w", v.name, err)
		}
		values, err := p.values(selector, v.name)
		if err != nil || len(values) == 0 || slices.Contains(values, "") {
			return nil, fmt.Errorf("the variable %s has the values %q of %s: %v", v.name, values, selector, err)
		}
		for i := range values {
			values[i] = regexp.QuoteMeta(values[i])
		}
		choices[v.name] = cmp.Or(v.all, strings.ReplaceAll(strings.Join(values, "|"), `\`, `\\`)) // in a string of PromQL
	}
	return choices, nil
}

// check evaluates a query of a panel under load. It returns how many samples it has while nothing is
// wrong, or an error if the query is wrong or has no value under load.
func (p *prom) check(ctx context.Context, q query, instant bool, variables map[string]string) (calm int, err error) {
	expr, err := p.substituted(q.expr, variables, p.end.Sub(p.begin))
	if err != nil {
		return 0, err
	}
	unknown, err := p.unknownSelectors(expr)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", expr, err)
	}
	if len(unknown) > 0 {
		return 0, fmt.Errorf("no process exports %s", strings.Join(unknown, ", nor "))
	}
	_, numbers, err := p.samples(ctx, expr, instant, p.begin, p.end)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", expr, err)
	}
	if numbers == 0 {
		return 0, fmt.Errorf("under load there is no value of %s", expr)
	}
	if expr, err = p.substituted(q.expr, variables, p.calm.Sub(p.begin)); err != nil {
		return 0, err
	}
	calm, _, err = p.samples(ctx, expr, instant, p.begin, p.calm)
	return calm, err
}

// problems returns what is wrong with the queries of a dashboard.
func (p *prom) problems(ctx context.Context, d dashboard) (problems []string) {
	variables, err := p.choices(d)
	if err != nil {
		return []string{err.Error()}
	}
	for _, panel := range d.panels() {
		empty := true
		for _, q := range panel.queries {
			calm, err := p.check(ctx, q, panel.kind == "stat", variables)
			if err != nil {
				problems = append(problems, panel.title+": "+err.Error())
			}
			empty = empty && calm == 0 && err == nil
		}
		if empty {
			problems = append(problems, panel.title+": the panel is empty while nothing is wrong: count failures from 0")
		}
	}
	return problems
}

// Each query can be parsed, uses only what a running pipeline exports, and is not empty under load.
// A panel of failures is 0 without them, and not empty.
func TestDashboards_ShowAPipelineUnderLoad(t *testing.T) {
	p := prometheusOf(t, underLoad(t))
	for _, d := range dashboards() {
		expect.Same(t, p.problems(t.Context(), d), nil, "problems of %s", d.file)
	}

	// The checks above find these mistakes.
	for expr, want := range map[string]string{
		`sum(rate(orderclose_close_total[$__rate_interval])`:                            "unclosed left parenthesis",
		`sum(rate(orderclose_close_total{job=~"$jobs"}[$__rate_interval]))`:             "$jobs is no variable",
		`sum(orderclose_closed_total) or vector(0)`:                                     "no process exports orderclose_closed_total",
		`sum(orderclose_close_total{result="close"}) or vector(0)`:                      `no process exports orderclose_close_total{result="close"}`,
		`orderclose_close_total{result="closed"} > 1e9`:                                 "under load there is no value",
		`orderclose_dead_letters_open`:                                                  "the panel is empty while nothing is wrong",
		`orderclose_close_total * on (job) orderclose_close_total`:                      "many-to-many",
		`histogram_quantile(0.5, sum(rate(orderclose_close_batch_seconds_bucket[1m])))`: "under load there is no value",
	} {
		wrong := dashboard{rows: []row{{panels: []panel{graph("wrong", "", "", "", "", query{expr: expr})}}}}
		got := strings.Join(p.problems(t.Context(), wrong), "\n")
		expect.That(t, strings.Contains(got, want), "%s has the problems %q, want %q", expr, got, want)
	}
}
