package store

import (
	"github.com/orderclose/orderclose/internal/store/closetx"
	"github.com/orderclose/orderclose/internal/store/internal/db"
	"github.com/orderclose/orderclose/internal/store/money"
	"github.com/orderclose/orderclose/internal/store/read"
	"github.com/orderclose/orderclose/internal/store/schema"
)

// Callers import package store alone. These are the types, values and functions of the packages below that they use.
type (
	DialectName    = db.DialectName
	MappingError   = db.MappingError
	Schema         = schema.Schema
	SchemaError    = schema.SchemaError
	AuditState     = schema.AuditState
	Evidence       = schema.Evidence
	PaidSample     = schema.PaidSample
	Trial          = closetx.Trial
	ReceiptRow     = closetx.ReceiptRow
	LatePayment    = money.LatePayment
	LateSummary    = money.LateSummary
	LateSource     = money.LateSource
	LateResolution = money.LateResolution
	Status         = read.Status
	Tx             = read.Tx
	OrderCounts    = read.OrderCounts
	Filled         = schema.Filled
	Below          = schema.Below
	OrderHistory   = read.OrderHistory
	OrderRow       = read.OrderRow
	ItemRow        = read.ItemRow
	PendingRow     = read.PendingRow
	LedgerRow      = read.LedgerRow
	ReceiptKey     = read.ReceiptKey
	AuditPart      = read.AuditPart
	AuditRow       = read.AuditRow
	AuditRules     = read.AuditRules
	StockFinding   = read.StockFinding
)

const (
	MySQL, Postgres, SQLite                                      = db.MySQL, db.Postgres, db.SQLite
	AuditOpen, AuditExcluded, AuditPaid, AuditClosed, AuditOther = schema.AuditOpen, schema.AuditExcluded, schema.AuditPaid, schema.AuditClosed, schema.AuditOther
	SourceCallback, SourceRecheck, SourceSameID                  = money.SourceCallback, money.SourceRecheck, money.SourceSameID
	Refunded, Reopened                                           = money.Refunded, money.Reopened
	Unpaid, Paid, Closed, Cancelled                              = read.Unpaid, read.Paid, read.Closed, read.Cancelled
	CountLimit, OddLimit                                         = read.CountLimit, read.OddLimit
)

var (
	ErrLocked, ErrDelays, ErrServer     = db.ErrLocked, db.ErrDelays, db.ErrServer
	Classify, Denied, Passes            = db.Classify, db.Denied, db.Passes
	IsSlow, Limited                     = db.IsSlow, db.Limited
	WriteDelays, WriteMigrations        = db.WriteDelays, schema.WriteMigrations
	ErrNoTrial, ErrNoCategory           = closetx.ErrNoTrial, closetx.ErrNoCategory
	ExpandEvent, JudgeStock             = closetx.ExpandEvent, read.JudgeStock
	ErrBadPayment                       = money.ErrBadPayment
	ErrNoLatePayment, ErrResolvedBefore = money.ErrNoLatePayment, money.ErrResolvedBefore
)
