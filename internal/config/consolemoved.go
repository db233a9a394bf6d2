package config

import (
	"fmt"
	"regexp"
	"strings"
)

// The variables that consoles had before EnvConsoleWebConfig.
const (
	oldTokens    = "ORDERCLOSE_CONSOLE_TOKENS_FILE"
	oldPasswords = "ORDERCLOSE_CONSOLE_PASSWORDS_FILE"
	oldCert      = "ORDERCLOSE_CONSOLE_TLS_CERT_FILE"
	oldKey       = "ORDERCLOSE_CONSOLE_TLS_KEY_FILE"
)

// movedVariables returns an error with the text of the web configuration file that replaces the variables
// that consoles had before; nil: none of them is set.
func movedVariables(value func(string) string) error {
	var set []string
	var users strings.Builder // the lines of the old files
	for _, name := range []string{oldTokens, oldPasswords, oldCert, oldKey} {
		if value(name) == "" {
			continue
		}
		set = append(set, name)
		if name == oldTokens || name == oldPasswords {
			text, _ := readFile(value(name)) // without it, the text below has an example
			fmt.Fprintf(&users, "%s\n", text)
		}
	}
	if set == nil {
		return nil
	}
	text := MovedUsers(users.String())
	if text == "" && (value(oldTokens) != "" || value(oldPasswords) != "") {
		text = MovedUsers("NAME:$2y$")
	}
	if value(oldCert) != "" || value(oldKey) != "" {
		text = "tls_server_config:\n  cert_file: the file of " + oldCert + "\n  key_file: the file of " + oldKey + "\n" + text
	}
	return fmt.Errorf("%s: the console does not read this any more; unset it, and name a file with this text in %s:\n\n%s",
		strings.Join(set, ", "), EnvConsoleWebConfig, text)
}

// oldUser matches a line of a file of tokens, such as "ann operator sha256:…", or of passwords, such as
// "ann:$2y$…".
var oldUser = regexp.MustCompile(`(?m)^[ \t]*(?:([^\s#]\S*)[ \t]+(viewer|operator)[ \t]+sha256:|([^\s:#][^:\r\n]*):\$2[aby]\$)`)

// MovedUsers returns what replaces a file of tokens or of passwords: the web configuration file with the
// same users, and what to do beside it. "": text is no such file. The result quotes no hash.
func MovedUsers(text string) string {
	var file strings.Builder
	var operators []string
	for _, line := range oldUser.FindAllStringSubmatch(text, -1) {
		name := line[1] + line[3]
		fmt.Fprintf(&file, "  %q: HASH\n", name)
		if line[2] == "operator" {
			operators = append(operators, name)
		}
	}
	if file.Len() == 0 {
		return ""
	}
	text = "basic_auth_users:\n" + file.String() +
		"\nEach HASH is what follows the name in a file of passwords, or in what \"htpasswd -nB -C 10 NAME\" prints for a new password."
	if operators != nil {
		text += " Set " + EnvConsoleOperators + "=" + strings.Join(operators, ",") + "."
	}
	return text + " docs/security.md says how to move."
}
