-- What orderclose needs in the tables of litemall. Run the statement at a quiet time.
ALTER TABLE litemall_coupon_user
  ADD KEY by_order (order_id), ALGORITHM = INPLACE, LOCK = NONE;
