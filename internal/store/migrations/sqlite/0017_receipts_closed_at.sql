-- For the second question to the payment provider, which reads the orders closed in a span of time.
CREATE INDEX receipts_closed_at ON receipts (closed_at, order_id);
