-- What orderclose needs in the tables of litemall. Run the statements at a quiet time, in this order.
ALTER TABLE litemall_order
  ADD KEY status_created (order_status, add_time, id), ALGORITHM = INPLACE, LOCK = NONE;
ALTER TABLE litemall_coupon_user
  ADD KEY by_order (order_id), ALGORITHM = INPLACE, LOCK = NONE;
