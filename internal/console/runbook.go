package console

import (
	"strings"

	"github.com/orderclose/orderclose/internal/runbook"
)

// Document returns the address of the runbook with its links and tables, that of the newest release.
func (page) Document() string {
	return "https://github.com/orderclose/orderclose/blob/main/docs/runbook.md"
}

// Runbook returns the address of a section of the runbook; that of the whole if section is "".
func (p page) Runbook(section string) string {
	address := p.c.o.Settings.Runbook
	if address == "" {
		address = p.Base() + "/runbook"
	}
	if section == "" {
		return address
	}
	return address + "#" + section
}

// Commands returns the first commands of a section of the runbook.
func (p page) Commands(section string) string {
	s, _ := runbook.At(section)
	return strings.Join(s.First(), "\n")
}
