-- Why the stock of a SKU did not come back, in a row whose quantity is 0.
ALTER TABLE stock_ledger ADD COLUMN IF NOT EXISTS reason VARCHAR(255) NOT NULL DEFAULT '';
