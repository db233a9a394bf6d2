package postgres

import "github.com/orderclose/orderclose/internal/store/mapping"

// Moments are the formats of the time of a column, without a zone and in UTC. The other variables of this file are the
// further parts of a trigger that schedules orders, as package store describes them.
var Moments = map[mapping.TimeType]string{
	mapping.TimestampTZ: "(%[1]s AT TIME ZONE 'UTC')",
	mapping.UnixSeconds: "(to_timestamp(%[1]s) AT TIME ZONE 'UTC')",
	mapping.UnixMillis:  "(to_timestamp(%[1]s / 1000.0) AT TIME ZONE 'UTC')",
}

// FarDue are the values of a due column from which on no order is scheduled.
var FarDue = map[mapping.TimeType]string{
	mapping.DateTime:    NowUTC + " + INTERVAL '3650' DAY",
	mapping.TimestampTZ: "statement_timestamp() + INTERVAL '3650' DAY",
	mapping.UnixSeconds: "extract(epoch FROM statement_timestamp()) + 315360000",
	mapping.UnixMillis:  "(extract(epoch FROM statement_timestamp()) + 315360000) * 1000",
}

const (
	NowUTC      = "(statement_timestamp() AT TIME ZONE 'UTC')"
	ZonedMoment = "(%[1]s AT TIME ZONE %[2]s AT TIME ZONE 'UTC')"
	MomentText  = `to_char(%s, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
	// CreateTrigger runs as its owner, so that the shop's user needs no right to the outbox, and with a fixed
	// search path, so that no table of that user takes the outbox's place.
	CreateTrigger = `CREATE OR REPLACE FUNCTION %[5]s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  %[4]s;
  RETURN NULL;
END $$;
CREATE TRIGGER %[1]s AFTER INSERT ON %[2]s FOR EACH ROW
WHEN (%[3]s)
EXECUTE FUNCTION %[5]s()`
	DropTrigger = "DROP TRIGGER %[1]s ON %[2]s;\nDROP FUNCTION %[5]s()"
)
