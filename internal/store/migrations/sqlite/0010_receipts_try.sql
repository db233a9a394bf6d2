-- +goose Up
-- Which transaction wrote a receipt: after a commit without an answer this tells
-- whether it was done.
ALTER TABLE receipts ADD COLUMN try INTEGER NOT NULL DEFAULT 0; -- a random number for each transaction
