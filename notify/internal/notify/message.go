package notify

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"
	"time"
	"unicode/utf8"
)

// Message is what a template of a receiver gets. Alertmanager posts the fields with a JSON name;
// https://prometheus.io/docs/alerting/latest/configuration/#webhook_config describes them.
type Message struct {
	Status       string            `json:"status"` // firing or resolved
	GroupLabels  map[string]string `json:"groupLabels"`
	CommonLabels map[string]string `json:"commonLabels"`
	ExternalURL  string            `json:"externalURL"` // of Alertmanager
	Alerts       []Alert           `json:"alerts"`      // those that fire first
	Truncated    int               `json:"truncatedAlerts"`

	Title   string `json:"-"` // such as "[FIRING:2] OrdercloseRoleMissing"
	Text    string `json:"-"` // the alerts, within the receiver's limit
	LeftOut int    `json:"-"` // how many alerts Text does not have
	Secret  string `json:"-"` // the content of secret_file; for headers and the body only
}

// Alert is one alert of a Message.
type Alert struct {
	Status       string            `json:"status"` // firing or resolved
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL"` // of the rule, in Prometheus
}

// The default texts of an alert.
const (
	markdownAlert = `**{{ if eq .Status "resolved" }}Resolved: {{ end }}{{ or .Annotations.summary .Labels.alertname }}**
{{- with .Annotations.description }}

{{ . }}{{ end }}
{{- with .Annotations.runbook_url }}

[{{ . }}]({{ . }}){{ end }}`
	plainAlert = `{{ if eq .Status "resolved" }}Resolved: {{ end }}{{ or .Annotations.summary .Labels.alertname }}`
)

// firing is the status of an alert, and of a message with at least one such alert.
const firing = "firing"

// decode reads what Alertmanager posts.
func decode(body io.Reader) (*Message, error) {
	m := &Message{}
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("the request is incomplete: %w", err)
	}
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("this is not a request of Alertmanager: %w", err)
	}
	if len(m.Alerts) == 0 || m.Status == "" {
		return nil, errors.New("this is not a request of Alertmanager: it has no alerts or no status")
	}
	slices.SortStableFunc(m.Alerts, func(a, b Alert) int { return strings.Compare(a.Status, b.Status) }) // firing, resolved
	return m, nil
}

// write sets Title, Text and LeftOut. alert makes the text of one alert, and limit is that of Text, in
// characters.
func (m *Message) write(alert *template.Template, limit int) error {
	number := 0
	for _, a := range m.Alerts {
		if a.Status == m.Status {
			number++
		}
	}
	name := cmp.Or(m.GroupLabels["alertname"], m.CommonLabels["alertname"])
	m.Title = strings.TrimSpace(fmt.Sprintf("[%s:%d] %s", strings.ToUpper(m.Status), number, name))

	var texts []string
	for _, a := range m.Alerts {
		var b strings.Builder
		if err := alert.Execute(&b, a); err != nil {
			return fmt.Errorf("the template of an alert: %w", err)
		}
		texts = append(texts, strings.TrimSpace(b.String()))
	}
	m.Text, m.LeftOut = fit(texts, m.Truncated, limit)
	return nil
}

// fit joins as many texts as the limit allows, and names the number of the others. If not even the
// first text fits, it is cut. more is the number of texts that are missing already.
func fit(texts []string, more, limit int) (text string, leftOut int) {
	shown, length := 0, 0 // length is that of the texts so far, with the lines between them
	for i, t := range texts {
		length += utf8.RuneCountInString(t) + min(i, 1)*len(between)
		if length > limit {
			break
		}
		if length+utf8.RuneCountInString(rest(len(texts)-i-1+more)) <= limit {
			shown = i + 1
		}
	}
	if shown > 0 {
		leftOut = len(texts) - shown + more
		return strings.Join(texts[:shown], between) + rest(leftOut), leftOut
	}
	leftOut = len(texts) - 1 + more
	end := "…" + rest(leftOut)
	first := []rune(texts[0])
	return string(first[:max(0, min(len(first), limit-utf8.RuneCountInString(end)))]) + end, leftOut
}

const between = "\n\n" // the texts of two alerts

func rest(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s… and %d more", between, n)
}

// parse parses a template, and executes it with a sample to find fields that do not exist.
func parse(t Template, standard string, sample any) (*template.Template, error) {
	parsed, err := template.New("template").Option("missingkey=zero").Funcs(template.FuncMap{"json": toJSON}).Parse(cmp.Or(t.Text, standard))
	if err == nil {
		err = parsed.Execute(io.Discard, sample)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.At, err)
	}
	return parsed, nil
}

// toJSON returns v as JSON, for a template of JSON: a text with its quotes.
func toJSON(v any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}
