-- Why the stock of a SKU did not come back, in a row whose quantity is 0.
ALTER TABLE stock_ledger ADD COLUMN reason TEXT NOT NULL DEFAULT '';
