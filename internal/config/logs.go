package config

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
)

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
		return slog.NewJSONHandler(w, o), nil
	case flag != "":
		return nil, fmt.Errorf("--log-format is %q, want %s or %s", flag, logText, logJSON)
	}
	return nil, fmt.Errorf("%s is %q, want %s or %s", EnvLogFormat, variable, logText, logJSON)
}
