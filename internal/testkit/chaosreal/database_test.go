//go:build linux

package main

import (
	"reflect"
	"slices"
	"testing"

	"github.com/orderclose/orderclose/internal/testkit/expect"
)

// A statement that is missing would make a fault do nothing.
func TestDatabases_HaveEveryStatement(t *testing.T) {
	for _, d := range databases {
		fields := reflect.ValueOf(*d)
		for n := range fields.NumField() {
			name := fields.Type().Field(n).Name
			optional := []string{"noName", "forgets"}
			expect.That(t, !fields.Field(n).IsZero() || slices.Contains(optional, name), "%s has no %s", d.name, name)
		}
	}
}

func TestPostgres_NumbersArguments(t *testing.T) {
	expect.Equal(t, postgreSQL.bind("SELECT ? WHERE id = ?"), "SELECT $1 WHERE id = $2", "bind")
}
