-- What a close returned to the stock, in JSON: the quantity of each SKU that came back. It is in the receipt, which has the order's only key.
-- Programs before this version write rows of the table stock_ledger in its place, and leave the column NULL.
ALTER TABLE receipts ADD COLUMN IF NOT EXISTS returned TEXT COLLATE "C" NULL;
-- Why a quantity is 0.
ALTER TABLE receipts ADD COLUMN IF NOT EXISTS left_out VARCHAR(255) COLLATE "C" NOT NULL DEFAULT '';
