//go:build linux

package main

import (
	"reflect"
	"slices"
	"testing"
)

// A statement that is missing would make a fault do nothing.
func TestDatabases_HaveEveryStatement(t *testing.T) {
	for _, d := range databases {
		fields := reflect.ValueOf(*d)
		for n := range fields.NumField() {
			name := fields.Type().Field(n).Name
			if optional := []string{"noName", "forgets"}; fields.Field(n).IsZero() && !slices.Contains(optional, name) {
				t.Errorf("%s has no %s", d.name, name)
			}
		}
	}
}

func TestPostgres_NumbersArguments(t *testing.T) {
	if got := postgreSQL.bind("SELECT ? WHERE id = ?"); got != "SELECT $1 WHERE id = $2" {
		t.Error(got)
	}
}
