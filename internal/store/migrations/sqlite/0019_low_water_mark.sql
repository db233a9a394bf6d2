-- Nothing reads or writes this column any more.
ALTER TABLE sweeps ADD COLUMN order_id INTEGER NULL;
