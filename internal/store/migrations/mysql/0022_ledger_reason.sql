-- Why the stock of a SKU did not come back, in a row whose quantity is 0.
ALTER TABLE stock_ledger ADD COLUMN reason VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '';
