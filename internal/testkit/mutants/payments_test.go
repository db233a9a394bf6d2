package mutants

// paymentsMutants are mistakes in the module that cancels payments.
var paymentsMutants = []mutant{
	{"alipay-signature-ignored", "a response without Alipay's signature is believed", changes{{":", ` && r.Code == "":`}},
		"payments/alipay", "TestAPI_BelievesOnlyResponsesOfAlipay", `Cancel: "cancelled"`},
	{"missing-trade-ended", "a trade that does not exist yet has ended", nil,
		"payments/alipay", "TestAPI_AnswersByTheStatusOfTheTrade", `Cancel: "cancelled", <nil>, want "unknown"`},
	{"unclosed-trade-ended", "a trade that Alipay does not close has ended", changes{{"Unknown", "Cancelled"}},
		"payments/alipay", "TestAPI_ATradeThatIsNotClosedStaysUnknown", `"cancelled"`},
	{"wechat-signature-ignored", "a response without WeChat Pay's signature is believed", changes{{"!", `at == "" && !`}},
		"payments/wechatpay", "TestAPI_BelievesOnlyResponsesOfWeChatPay", `Cancel: "cancelled"`},
	{"wechat-old-believed", "an old response of WeChat Pay is believed", changes{{"maxAge", "100*maxAge"}},
		"payments/wechatpay", "TestAPI_BelievesOnlyResponsesOfWeChatPay", "six minutes old: Cancel"},
	{"wechat-typing-cancelled", "a customer who is typing the password at WeChat Pay cannot pay any more",
		changes{{"== http.StatusNoContent", "< http.StatusMultipleChoices"}},
		"payments/wechatpay", "TestAPI_AnswersByTheStateOfTheOrder", `Cancel: "cancelled", <nil>, want "unknown"`},
}
