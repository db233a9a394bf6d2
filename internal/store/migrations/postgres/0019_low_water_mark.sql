-- Nothing reads or writes this column any more.
ALTER TABLE sweeps ADD COLUMN IF NOT EXISTS order_id BIGINT NULL;
