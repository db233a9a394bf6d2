package mapping

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// binary reports whether the database has keys of the type as bytes, which no record can contain.
func (t KeyType) binary() bool { return t == UUIDBinary || t == UUIDSwapped }

// Read writes the expression of a column with keys of this type as text.
func (k Key) Read(column string) string {
	column = Quote(column)
	parts := map[KeyType]string{UUIDBinary: "1, 8|9, 4|13, 4", UUIDSwapped: "9, 8|5, 4|1, 4"}[k.Type]
	if parts == "" {
		return column
	}
	list := ""
	for _, part := range strings.Split(parts+"|17, 4|21, 12", "|") {
		list += fmt.Sprintf(", SUBSTR(HEX(%s), %s)", column, part)
	}
	return "CASE WHEN " + column + " IS NULL THEN NULL ELSE LOWER(CONCAT_WS('-'" + list + ")) END"
}

// bytes returns a UUID as a column of this type stores it; empty: it is no UUID.
func (k Key) bytes(id string) []byte {
	digits := strings.ReplaceAll(id, "-", "")
	if k.Type == UUIDSwapped && len(digits) == 32 {
		digits = digits[12:16] + digits[8:12] + digits[:8] + digits[16:]
	}
	all, _ := hex.DecodeString(digits)
	return all
}
