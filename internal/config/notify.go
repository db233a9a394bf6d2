package config

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Notify is a checked notify.yaml: where orderclose notify sends alerts. Receivers has at least one
// entry.
type Notify struct {
	Receivers map[string]NotifyReceiver // by name, which is the end of the path /alert/NAME
}

// NotifyReceiver is one robot or provider. Exactly one of DingTalk and HTTP is set, and exactly one
// of URL and URLFile.
type NotifyReceiver struct {
	URL        string // http or https
	URLFile    string // a file that holds the URL
	SecretFile string // a file that holds a secret; "" only with HTTP
	// Limit is the most characters of Message.Text, at least 20. With DingTalk the default and
	// maximum is 4000, with HTTP the default 500 and the maximum 20,000.
	Limit    int
	Alert    Template // the text of one alert; its Text is "" for the default
	DingTalk *DingTalk
	HTTP     *NotifyHTTP
}

// DingTalk is a custom robot of DingTalk that checks signatures.
type DingTalk struct {
	At []string // mobile numbers of the people to mention while an alert fires, or "all"
}

// NotifyHTTP is a request to a provider, such as one that sends SMS or calls.
type NotifyHTTP struct {
	Method   string              // POST or PUT; default: POST
	Headers  map[string]Template // by name
	Body     Template
	Accepted *regexp.Regexp // matches the body of an answer that means success; nil: each 2xx does
}

// Template is a template that this package does not parse.
type Template struct {
	Text string
	At   string // its position, as file:line:column and the key
}

// The limits of a text, in characters.
const (
	dingTalkLimit = 4000 // default and maximum: a robot accepts 20,000 bytes, and a character has up to 4
	httpLimit     = 500  // default
	maxHTTPLimit  = 20_000
)

// LoadNotify reads and checks the file at path. It does not read the files that this file names.
// The error is of type Problems if the file can be read and is wrong.
func LoadNotify(path string) (*Notify, error) {
	data, err := ReadFile(path, MaxFile)
	if err != nil {
		return nil, fmt.Errorf("read the receivers: %w; pass the path of notify.yaml", err)
	}
	return ParseNotify(path, data)
}

// ParseNotify reads and checks the content of a notify.yaml. file is the name that messages give to
// the file. The error is of type Problems and lists every problem.
func ParseNotify(file string, data []byte) (*Notify, error) {
	r := newReader(file)
	c := &Notify{Receivers: map[string]NotifyReceiver{}}
	if r.document(data) {
		if r.root != nil {
			section(fields{"receivers": entries(c.receiver)})(r, "", r.root)
		}
		if len(c.Receivers) == 0 && len(r.problems) == 0 {
			r.add(r.node("receivers"), "", "no receiver", "name one below receivers, with dingtalk or http")
		}
	}
	if len(r.problems) > 0 {
		return nil, r.problems.sorted()
	}
	return c, nil
}

var receiverName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// receiver reads one receiver.
func (c *Notify) receiver(r *reader, path, name string, n *yaml.Node) {
	if !receiverName.MatchString(name) {
		r.refuse(path, n, fmt.Sprintf("%s cannot be the end of a URL", quote(name)), "use a-z, A-Z, 0-9, underscore and hyphen only")
		return
	}
	to := NotifyReceiver{}
	robot, provider := &DingTalk{}, &NotifyHTTP{Method: "POST", Headers: map[string]Template{}}
	dingtalk, http := join(path, "dingtalk"), join(path, "http")
	common := func(maxLimit int, more fields) fields {
		more["url"], more["url_file"] = address(&to.URL), filename(&to.URLFile)
		more["secret_file"] = filename(&to.SecretFile)
		more["limit"] = integer(&to.Limit, 20, maxLimit)
		more["alert"] = template(&to.Alert)
		return more
	}
	section(fields{
		"dingtalk": section(common(dingTalkLimit, fields{"at": list(`["13800000000"]`, textOf(robot.mention))})),
		"http": section(common(maxHTTPLimit, fields{
			"method":   choice(&provider.Method, "POST", "PUT"),
			"headers":  entries(provider.header),
			"body":     template(&provider.Body),
			"accepted": expression(&provider.Accepted),
		})),
	})(r, path, n)
	if r.anyBad(path) {
		return
	}
	at := dingtalk
	switch {
	case (r.at[dingtalk] == nil) == (r.at[http] == nil):
		r.refuse(path, n, "want either dingtalk or http", "write one of them")
		return
	case r.at[dingtalk] != nil:
		to.DingTalk, to.Limit = robot, cmp.Or(to.Limit, dingTalkLimit)
	default:
		to.HTTP, to.Limit, at = provider, cmp.Or(to.Limit, httpLimit), http
	}
	switch {
	case (to.URL == "") == (to.URLFile == ""):
		r.refuse(join(at, "url"), r.at[at], "want either url or url_file", "write one of them; a URL that holds a token belongs into a file")
	case to.DingTalk != nil && to.SecretFile == "":
		r.refuse(join(at, "secret_file"), r.at[at], "is missing", "create the robot with the security setting signature, and name a file that holds its secret")
	case to.HTTP != nil && to.HTTP.Body.Text == "":
		r.refuse(join(at, "body"), r.at[at], "is missing", `write what the provider expects, such as '{"text": {{ json .Text }}}'`)
	}
	c.Receivers[name] = to
}

// mention stores one entry of the list of people to mention.
func (d *DingTalk) mention(who string) (wrong, do string) {
	if who != "all" && strings.Trim(who, "+-0123456789") != "" || who == "" {
		return quote(who) + " is not a mobile number", `write it in quotes, such as "13800000000", or write all`
	}
	d.At = append(d.At, who)
	return "", ""
}

func (h *NotifyHTTP) header(r *reader, path, name string, n *yaml.Node) {
	var value Template
	if template(&value)(r, path, n); !r.bad[path] {
		h.Headers[name] = value
	}
}

func template(to *Template) parser {
	return func(r *reader, path string, n *yaml.Node) {
		if text(&to.Text)(r, path, n); !r.bad[path] {
			to.At = fmt.Sprintf("%s:%d:%d: %s", r.file, n.Line, n.Column, path)
		}
	}
}

// filename reads the name of a file that holds a URL or a secret.
func filename(to *string) parser {
	return textOf(func(name string) (wrong, do string) {
		if *to = name; name == "" {
			return "the name is empty", "write the path of the file"
		}
		return "", ""
	})
}

func expression(to **regexp.Regexp) parser {
	return textOf(func(raw string) (wrong, do string) {
		e, err := regexp.Compile(raw)
		if err != nil {
			return "this is not a regular expression: " + err.Error(), `write one, such as '"code": *0\b'`
		}
		*to = e
		return "", ""
	})
}

// ReadSecret returns the content of a file that holds a URL or a secret, without the newline that
// editors add. Its errors name the file and never quote the content.
func ReadSecret(file string) (string, error) {
	data, err := ReadFile(file, MaxSecret)
	switch value := strings.TrimRight(string(data), "\r\n"); {
	case err != nil:
		return "", fmt.Errorf("%w; mount the secret there", err)
	case value == "" || strings.ContainsFunc(value, unicode.IsControl):
		return "", fmt.Errorf("%s: want one line of text; write the value into it", file)
	default:
		return value, nil
	}
}
