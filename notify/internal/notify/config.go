package notify

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/orderclose/orderclose/internal/config"
	"github.com/orderclose/orderclose/internal/signature"
)

// Config is a checked notify.yaml: where alerts are sent. It has at least one receiver.
type Config struct {
	Receivers map[string]Receiver `yaml:"receivers"` // by name, which is the end of the path /alert/NAME
}

// Receiver is one robot or provider. Exactly one of DingTalk and HTTP is set.
type Receiver struct {
	DingTalk *DingTalk `yaml:"dingtalk"`
	HTTP     *HTTP     `yaml:"http"`
}

// Target is what robots and providers have. Exactly one of URL and URLFile is set.
type Target struct {
	URL        string `yaml:"url"`         // http or https
	URLFile    string `yaml:"url_file"`    // a file that holds the URL
	SecretFile string `yaml:"secret_file"` // a file that holds a secret; "" only with HTTP
	// Limit is the most characters of Message.Text, at least 20. With DingTalk the default and
	// maximum is 4000, with HTTP the default 500 and the maximum 20,000.
	Limit int      `yaml:"limit"`
	Alert Template `yaml:"alert"` // the text of one alert; its Text is "" for the default
}

// DingTalk is a custom robot of DingTalk that checks signatures.
type DingTalk struct {
	Target `yaml:",inline"`
	At     []string `yaml:"at"` // mobile numbers of the people to mention while an alert fires, or "all"
}

// HTTP is a request to a provider, such as one that sends SMS or calls.
type HTTP struct {
	Target   `yaml:",inline"`
	Method   string              `yaml:"method"`  // POST or PUT; default: POST
	Headers  map[string]Template `yaml:"headers"` // by name
	Body     Template            `yaml:"body"`
	Accepted string              `yaml:"accepted"` // a regular expression of the answers that mean success; "": each 2xx does

	accepted *regexp.Regexp
}

// Template is a text with its position in the file, as file:line:column and the key.
type Template struct{ Text, At string }

// UnmarshalYAML reads the text. At is line and column, until ParseConfig adds the rest.
func (t *Template) UnmarshalYAML(n *yaml.Node) error {
	t.At = fmt.Sprintf("%d:%d", n.Line, n.Column)
	return n.Decode(&t.Text)
}

// The limits of a text, in characters.
const (
	minLimit      = 20
	dingTalkLimit = 4000 // default and maximum: a robot accepts 20,000 bytes, and a character has up to 4
	httpLimit     = 500  // default
	maxHTTPLimit  = 20_000
)

// LoadConfig reads and checks the file at path. It does not read the files that this file names.
func LoadConfig(path string) (*Config, error) {
	data, err := config.ReadFile(path, config.MaxFile)
	if err != nil {
		return nil, fmt.Errorf("read the receivers: %w; pass the path of notify.yaml", err)
	}
	return ParseConfig(path, data)
}

var (
	receiverName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	mobileNumber = regexp.MustCompile(`^[+0-9-]+$`)
	// goType is what the parser says about the types of this program, which the reader does not know.
	goType = regexp.MustCompile(` (in|into) (type )?notify\.\w+`)
)

// ParseConfig reads and checks the content of a notify.yaml. file is the name that messages give to the file. The
// error lists every mistake, with its key, or with its line if the parser found it.
func ParseConfig(file string, data []byte) (*Config, error) {
	c := &Config{}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %s", file, goType.ReplaceAllString(err.Error(), ""))
	}
	p := &checker{file: file}
	if len(c.Receivers) == 0 {
		p.mistake("receivers", "no receiver; name one below receivers, with dingtalk or http")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Receivers)) {
		p.receiver("receivers."+name, name, c.Receivers[name])
	}
	if len(p.mistakes) > 0 {
		return nil, errors.Join(p.mistakes...)
	}
	return c, nil
}

// checker collects the mistakes of a file, and completes what has none.
type checker struct {
	file     string
	mistakes []error
}

func (p *checker) mistake(key, text string, args ...any) {
	p.mistakes = append(p.mistakes, fmt.Errorf("%s: %s: %s", p.file, key, fmt.Sprintf(text, args...)))
}

func (p *checker) receiver(key, name string, r Receiver) {
	switch {
	case !receiverName.MatchString(name):
		p.mistake(key, "%.40q cannot be the end of a URL; use a-z, A-Z, 0-9, underscore and hyphen only", name)
	case (r.DingTalk == nil) == (r.HTTP == nil):
		p.mistake(key, "want either dingtalk or http; write one of them")
	case r.DingTalk != nil:
		p.dingTalk(key+".dingtalk", r.DingTalk)
	default:
		p.http(key+".http", r.HTTP)
	}
}

func (p *checker) dingTalk(key string, d *DingTalk) {
	p.target(key, &d.Target, dingTalkLimit, dingTalkLimit)
	if d.SecretFile == "" {
		p.mistake(key+".secret_file", "is missing; create the robot with the security setting signature, and name a file that holds its secret")
	}
	for i, who := range d.At {
		if who != "all" && !mobileNumber.MatchString(who) {
			p.mistake(fmt.Sprintf("%s.at[%d]", key, i), `%.40q is not a mobile number; write it such as "13800000000", or write all`, who)
		}
	}
}

func (p *checker) http(key string, h *HTTP) {
	p.target(key, &h.Target, httpLimit, maxHTTPLimit)
	if h.Method = cmp.Or(h.Method, "POST"); h.Method != "POST" && h.Method != "PUT" {
		p.mistake(key+".method", "%.40q is neither POST nor PUT; write POST or PUT", h.Method)
	}
	if h.Body.Text == "" {
		p.mistake(key+".body", `is missing; write what the provider expects, such as '{"text": {{ json .Text }}}'`)
	}
	h.Body.At = p.at(h.Body, key+".body")
	for name, t := range h.Headers {
		t.At = p.at(t, key+".headers."+name)
		h.Headers[name] = t
	}
	if h.Accepted != "" {
		var err error
		if h.accepted, err = regexp.Compile(h.Accepted); err != nil {
			p.mistake(key+".accepted", `this is not a regular expression: %v; write one, such as '"code": *0\b'`, err)
		}
	}
}

func (p *checker) target(key string, t *Target, standard, highest int) {
	switch {
	case (t.URL == "") == (t.URLFile == ""):
		p.mistake(key+".url", "want either url or url_file; write one of them; a URL that holds a token belongs into a file")
	case t.URL != "":
		if err := signature.CheckURL(t.URL); err != nil {
			p.mistake(key+".url", "%v; write it such as https://sms.example/send", err)
		}
	}
	if t.Limit = cmp.Or(t.Limit, standard); t.Limit < minLimit || t.Limit > highest {
		p.mistake(key+".limit", "%d is out of range; write one from %d to %d", t.Limit, minLimit, highest)
	}
	t.Alert.At = p.at(t.Alert, key+".alert")
}

func (p *checker) at(t Template, key string) string { return p.file + ":" + t.At + ": " + key }

// readSecret returns the content of a file that holds a URL or a secret, without the newline that
// editors add. Its errors name the file and never quote the content.
func readSecret(file string) (string, error) {
	data, err := config.ReadFile(file, config.MaxSecret)
	switch value := strings.TrimRight(string(data), "\r\n"); {
	case err != nil:
		return "", fmt.Errorf("%w; mount the secret there", err)
	case value == "" || strings.ContainsFunc(value, unicode.IsControl):
		return "", fmt.Errorf("%s: want one line of text; write the value into it", file)
	default:
		return value, nil
	}
}
