-- The type of an event, for programs that read the table. A short form without one is of a close.
ALTER TABLE outbox_events ADD COLUMN kind TEXT GENERATED ALWAYS AS (
  CASE WHEN json_valid(payload) THEN
    substr(COALESCE(json_extract(payload, '$.type'), json_extract(payload, '$.event'), 'order.closed'), 1, 64)
  END) VIRTUAL;
