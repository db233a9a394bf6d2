-- For the second question to the payment provider, which reads the orders closed in a span of time.
-- The times of new rows grow, so the index costs a close little. Closes wait while it is built.
CREATE INDEX receipts_closed_at ON receipts (closed_at, order_id);
