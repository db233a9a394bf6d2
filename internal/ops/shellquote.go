package ops

import "strings"

// ShellQuote quotes an order's id for a shell, for commands that people paste.
func ShellQuote(id string) string {
	if id != "" && id[0] != '-' && strings.IndexFunc(id, func(r rune) bool { return !plain(r) }) < 0 {
		return id
	}
	return "'" + strings.ReplaceAll(id, "'", `'\''`) + "'"
}

// plain reports whether a character has no special meaning in a shell.
func plain(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:@/+", r)
}
