package mutants

// paymentsMutants are mistakes in the module that cancels payments.
var paymentsMutants = []mutant{
	{
		name:  "a response without Alipay's signature is believed",
		edits: []edit{{"payments/alipay/alipay.go", "	case !isSigned:\n", "	case !isSigned && r.Code == \"\":\n"}},
		pkg:   "payments/alipay", run: "TestAPI_BelievesOnly", says: `Cancel: "cancelled"`,
	},
	{
		name:  "a trade that does not exist yet has ended",
		edits: []edit{{"payments/internal/signed/trade.go", "	case t.MayBeOpened():\n		return payment.Unknown, nil\n", ""}},
		pkg:   "payments/alipay", run: "TestAPI_AnswersByTheStatus", says: `Cancel: "cancelled", <nil>, want "unknown"`,
	},
	{
		name:  "a trade that Alipay does not close has ended",
		edits: []edit{{"payments/alipay/alipay.go", "	if answer == payment.Unpaid {\n		return payment.Unknown, fmt.Errorf(", "	if answer == payment.Unpaid {\n		return payment.Cancelled, fmt.Errorf("}},
		pkg:   "payments/alipay", run: "TestAPI_ATradeThatIsNotClosed", says: `"cancelled"`,
	},
	{
		name:  "a response without WeChat Pay's signature is believed",
		edits: []edit{{"payments/wechatpay/wechatpay.go", "	case !a.keys.Verify(", "	case at == \"\" && !a.keys.Verify("}},
		pkg:   "payments/wechatpay", run: "TestAPI_BelievesOnly", says: `Cancel: "cancelled"`,
	},
	{
		name:  "an old response of WeChat Pay is believed",
		edits: []edit{{"payments/wechatpay/wechatpay.go", "age.Abs() > maxAge", "age.Abs() > 100*maxAge"}},
		pkg:   "payments/wechatpay", run: "TestAPI_BelievesOnly", says: "six minutes old: Cancel",
	},
	{
		name:  "a customer who is typing the password at WeChat Pay cannot pay any more",
		edits: []edit{{"payments/wechatpay/wechatpay.go", "closed.status == http.StatusNoContent", "closed.status < http.StatusMultipleChoices"}},
		pkg:   "payments/wechatpay", run: "TestAPI_AnswersByTheState", says: `Cancel: "cancelled", <nil>, want "unknown"`,
	},
}
