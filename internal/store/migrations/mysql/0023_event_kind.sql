-- The type of an event, for programs that read the table. A short form without one is of a close.
ALTER TABLE outbox_events ADD COLUMN kind VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin AS (
  CASE WHEN JSON_VALID(payload) THEN
    LEFT(COALESCE(JSON_UNQUOTE(JSON_EXTRACT(payload, '$.type')), JSON_UNQUOTE(JSON_EXTRACT(payload, '$.event')), 'order.closed'), 64)
  END) VIRTUAL COMMENT 'the type of the event';
